/* Admission control under a memory limit for the KV cache, set for the run or by an offloading
 * cache policy: a request starts only if the limit has room for all KV entries that the request may
 * need, in addition to those reserved for other requests. */
#include "decode/loop.h"

static size_t memory_budget(const struct loop *loop)
{
    return session_options(loop->session)->memory_bytes;
}

/* KV cache memory of `width` sequences (beams) at the greatest length that the request can reach,
 * including the draft tokens of a step. */
static struct kv_footprint need_in(const struct session *session, const struct gen_request *request,
                                   size_t width)
{
    const struct session_options *o = session_options(session);
    const size_t prompt = size_min(request->ids->len, o->context), draft = o->rows / o->batch;
    const size_t rows = prompt + size_min(size_plus(request->n, draft), o->context - prompt);
    const size_t step = size_max(size_min(prompt, o->chunk), draft);
    struct kv_footprint need = kv_footprint(session_kv(session), prompt, rows, width);
    need.floor = size_times(width, offload_floor(session_kv(session), rows, step));
    return need;
}

static struct kv_footprint own_need(const struct loop *loop, const struct gen_request *request)
{
    return need_in(loop->session, request, loop->strategy->width);
}

static struct loop_footprints needs_of(const struct loop *loop, const struct gen_request *request)
{
    const struct session *draft = loop->strategy->draft_session;
    return (struct loop_footprints){own_need(loop, request),
                                    draft ? need_in(draft, request, 1) : (struct kv_footprint){0}};
}

/* KV cache memory reserved for all slots but `slot`, for requests in flight and for the entries
 * that free slots retain for prefix caching. */
static struct loop_footprints needs_of_others(const struct loop *loop, const struct slot *slot)
{
    struct loop_footprints sum = {0};
    for (const struct slot *other = loop->slot; other < loop->slot + loop->n_slots; other++)
        if (other != slot) {
            sum.target = kv_footprint_add(sum.target, other->footprint.target);
            sum.draft = kv_footprint_add(sum.draft, other->footprint.draft);
        }
    return sum;
}

/* The larger of `need`, the footprint of a request, and `before`, that of the KV entries retained
 * in its slot: the request reuses their memory. */
static struct kv_footprint with_retained(struct kv_footprint need, struct kv_footprint before)
{
    need.total = size_max(need.total, before.total);
    need.floor = size_max(need.floor, before.floor);
    need.ahead = size_max(need.ahead, before.ahead);
    return need;
}

static bool fits_memory(const struct loop *loop, const struct slot *slot,
                        const struct loop_footprints *needs)
{
    const struct kv_footprint target = kv_footprint_add(
        needs_of_others(loop, slot).target, with_retained(needs->target, slot->footprint.target));
    return (!memory_budget(loop) ||
            kv_footprint_peak(session_kv(loop->session), target) <= memory_budget(loop)) &&
           kv_footprint_possible(session_kv(loop->session), target);
}

/* True if the request fits in the draft model's KV cache, together with those of other slots, or if there
 * is no draft model. That cache retains no entries of finished requests. */
static bool fits_draft(const struct loop *loop, const struct slot *slot,
                       const struct loop_footprints *needs)
{
    const struct session *draft = loop->strategy->draft_session;
    return !draft ||
           kv_footprint_possible(session_kv(draft),
                                 kv_footprint_add(needs_of_others(loop, slot).draft, needs->draft));
}

static bool is_alone(const struct loop *loop, const struct slot *slot)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && &loop->slot[i] != slot)
            return false;
    return true;
}

size_t admission_over_budget(const struct loop *loop, const struct gen_request *request)
{
    if (!memory_budget(loop))
        return 0;
    const size_t bytes = kv_footprint_peak(session_kv(loop->session), own_need(loop, request));
    return bytes > memory_budget(loop) ? bytes : 0;
}

size_t admission_over_limit(const struct loop *loop, const struct gen_request *request,
                            struct kv_footprint *need)
{
    const struct session_options *o = session_options(loop->session);
    const size_t rows = size_min(request->ids->len, o->context);
    const size_t chunk = request->from ? TILE_ROWS : o->chunk; /* snapshots load tile by tile */
    *need = own_need(loop, request);
    return offload_prompt_excess(session_kv(loop->session), rows, chunk,
                                 request->n > 1 ? loop->strategy->width : 1);
}

bool admission_try(struct loop *loop, struct slot *slot, const struct gen_request *request)
{
    const struct loop_footprints needs = needs_of(loop, request);
    struct kv_footprint need;
    const struct session *draft = loop->strategy->draft_session;
    const bool limited = memory_budget(loop) || kv_offload(session_kv(loop->session)).ram ||
                         (draft && kv_offload(session_kv(draft)).ram);
    if (!limited || admission_over_budget(loop, request) || admission_over_limit(loop, request, &need))
        return true;
    if (!fits_draft(loop, slot, &needs) && !is_alone(loop, slot))
        return false;
    for (size_t i = loop->n_slots; i-- > 0 && !fits_memory(loop, slot, &needs);)
        if (&loop->slot[i] != slot && !loop->slot[i].busy)
            prefix_cache_evict(loop, &loop->slot[i]);
    if (!fits_memory(loop, slot, &needs))
        prefix_cache_evict(loop, slot);
    if (!fits_memory(loop, slot, &needs) && !is_alone(loop, slot))
        return false;
    slot->footprint.target = with_retained(needs.target, slot->footprint.target);
    slot->footprint.draft = needs.draft;
    return true;
}
