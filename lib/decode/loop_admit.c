/* Requests under a budget of memory, the run's or the cache's own: each comes in when all rows that it may get fit beside those of
 * the others, by the arithmetic of the cache's policy. */
#include "decode/loop.h"

static size_t budget(const struct loop *loop) { return loop->session->options.memory_bytes; }

/* Every row that it may come to, with those of a step's candidates; a sequence has no more than the context. */
static struct kv_need need_in(const struct session *session, const struct gen_request *request,
                              size_t width)
{
    const struct session_options *o = &session->options;
    const size_t prompt = size_min(request->ids->len, o->context), candidates = o->rows / o->batch;
    const size_t rows = prompt + size_min(size_plus(request->n, candidates), o->context - prompt);
    const size_t step = size_max(size_min(prompt, o->chunk), candidates);
    struct kv_need need = kv_need(session->kv, prompt, rows, width);
    need.least = size_times(width, kv_need_least(session->kv, rows, step));
    return need;
}

static struct kv_need own_need(const struct loop *loop, const struct gen_request *request)
{
    return need_in(loop->session, request, loop->strategy->width);
}

static struct loop_needs needs_of(const struct loop *loop, const struct gen_request *request)
{
    const struct session *beside = loop->strategy->beside;
    return (struct loop_needs){own_need(loop, request),
                               beside ? need_in(beside, request, 1) : (struct kv_need){0}};
}

/* Of all places but one: what is under way may still grow to it, and rows that stayed behind take no more. */
static struct loop_needs needs_of_others(const struct loop *loop, const struct slot *slot)
{
    struct loop_needs sum = {0};
    for (const struct slot *other = loop->slot; other < loop->slot + loop->n_slots; other++)
        if (other != slot) {
            sum.own = kv_need_add(sum.own, other->need.own);
            sum.beside = kv_need_add(sum.beside, other->need.beside);
        }
    return sum;
}

/* The request may go on with rows that stayed in its place, whose storage is there already. */
static struct kv_need grown(struct kv_need need, struct kv_need before)
{
    need.held = size_max(need.held, before.held);
    need.least = size_max(need.least, before.least);
    return need;
}

static bool fits(const struct loop *loop, const struct slot *slot, const struct loop_needs *needs)
{
    const struct kv_need own =
        kv_need_add(needs_of_others(loop, slot).own, grown(needs->own, slot->need.own));
    return (!budget(loop) || kv_need_total(own) <= budget(loop)) &&
           kv_need_possible(loop->session->kv, own);
}

/* The same of the cache beside it, where no rows stay that could go. */
static bool fits_beside(const struct loop *loop, const struct slot *slot,
                        const struct loop_needs *needs)
{
    const struct session *beside = loop->strategy->beside;
    return !beside ||
           kv_need_possible(beside->kv, kv_need_add(needs_of_others(loop, slot).beside, needs->beside));
}

static bool is_alone(const struct loop *loop, const struct slot *slot)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && &loop->slot[i] != slot)
            return false;
    return true;
}

size_t loop_too_large(const struct loop *loop, const struct gen_request *request)
{
    const size_t bytes = budget(loop) ? kv_need_total(own_need(loop, request)) : 0;
    return bytes > budget(loop) ? bytes : 0;
}

size_t loop_beyond_limit(const struct loop *loop, const struct gen_request *request,
                         struct kv_need *need)
{
    const struct session_options *o = &loop->session->options;
    const size_t rows = size_min(request->ids->len, o->context);
    const size_t step = request->from ? 0 : o->chunk; /* a snapshot's rows come in others */
    *need = own_need(loop, request);
    return kv_need_beyond(loop->session->kv, rows, step, request->n > 1 ? loop->strategy->width : 1);
}

bool loop_admit(struct loop *loop, struct slot *slot, const struct gen_request *request)
{
    const struct loop_needs needs = needs_of(loop, request);
    struct kv_need need;
    const bool limited = budget(loop) || needs.own.most || needs.beside.most;
    if (!limited || loop_too_large(loop, request) || loop_beyond_limit(loop, request, &need))
        return true;
    if (!fits_beside(loop, slot, &needs) && !is_alone(loop, slot))
        return false;
    for (size_t i = loop->n_slots; i-- > 0 && !fits(loop, slot, &needs);)
        if (&loop->slot[i] != slot && !loop->slot[i].busy)
            loop_forget(loop, &loop->slot[i]);
    if (!fits(loop, slot, &needs))
        loop_forget(loop, slot);
    if (!fits(loop, slot, &needs) && !is_alone(loop, slot))
        return false;
    slot->need.own = grown(needs.own, slot->need.own);
    slot->need.beside = needs.beside;
    return true;
}
