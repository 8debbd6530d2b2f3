/* Requests under a budget of memory, the run's or the cache's own: each comes in when all rows that it may get fit beside those of
 * the others, by the arithmetic of the cache's policy. */
#include "decode/loop.h"

static size_t budget(const struct loop *loop) { return loop->session->options.memory_bytes; }

/* Every row that it may come to; a sequence has no more than the context. */
static struct kv_need need_of(const struct loop *loop, const struct gen_request *request)
{
    const struct session *session = loop->session;
    const size_t context = session->options.context, prompt = size_min(request->ids->len, context);
    const size_t rows = prompt + size_min(request->n, context - prompt), width = loop->strategy->width;
    struct kv_need need = kv_need(session->kv, prompt, rows, width);
    need.least = width * kv_need_least(session->kv, rows, size_min(prompt, session->options.chunk));
    return need;
}

/* Of all places but one: what is under way may still grow to it, and rows that stayed behind take no more. */
static struct kv_need need_of_others(const struct loop *loop, const struct slot *slot)
{
    struct kv_need sum = {0};
    for (size_t i = 0; i < loop->n_slots; i++)
        if (&loop->slot[i] != slot)
            sum = kv_need_add(sum, loop->slot[i].need);
    return sum;
}

/* The request may go on with rows that stayed in its place, whose storage is there already. */
static bool fits(const struct loop *loop, const struct slot *slot, struct kv_need need)
{
    need.held = size_max(need.held, slot->need.held);
    need.least = size_max(need.least, slot->need.least);
    const struct kv_need all = kv_need_add(need_of_others(loop, slot), need);
    return (!budget(loop) || kv_need_total(all) <= budget(loop)) &&
           kv_need_possible(loop->session->kv, all);
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
    const size_t bytes = budget(loop) ? kv_need_total(need_of(loop, request)) : 0;
    return bytes > budget(loop) ? bytes : 0;
}

bool loop_admit(struct loop *loop, struct slot *slot, const struct gen_request *request)
{
    const struct kv_need need = need_of(loop, request);
    if ((!budget(loop) && !need.most) || loop_too_large(loop, request))
        return true;
    for (size_t i = loop->n_slots; i-- > 0 && !fits(loop, slot, need);)
        if (&loop->slot[i] != slot && !loop->slot[i].busy)
            loop_forget(loop, &loop->slot[i]);
    if (!fits(loop, slot, need))
        loop_forget(loop, slot);
    if (!fits(loop, slot, need) && !is_alone(loop, slot))
        return false;
    slot->need.held = size_max(need.held, slot->need.held);
    slot->need.least = size_max(need.least, slot->need.least);
    slot->need.moving = need.moving;
    slot->need.most = need.most;
    return true;
}
