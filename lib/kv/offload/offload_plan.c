/* Decides which KV heads stay in memory. */
#include "kv/offload/offload_plan.h"

/* Minimum time to read a group of heads, in ms: about twenty times the overhead of a request. */
#define GROUP_MS 2.0

/* Heads among the first `end` of a layer that are not streaming heads. */
static size_t retrieval_heads(const struct offload_memory *m, size_t layer, size_t end)
{
    return m->streaming ? kv_retrieval_count(m->streaming, layer, end) : end;
}

/* Maximum number of heads read from the file for one group of a layer of these sizes: only its retrieval heads are. */
static size_t widest(const struct offload_memory *m, const struct kv_sizes *sizes, size_t group)
{
    return m->streaming ? kv_retrieval_widest(m->streaming, size_max(group, 1))
                        : size_min(group, sizes->kv_heads);
}

size_t offload_plan_bytes(const struct offload_memory *m, size_t group, const size_t *resident)
{
    const struct kv_shape *shape = m->shape;
    size_t all = m->streaming_bytes, tails = m->more_bytes, buffer = 0, offloaded = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        const size_t i = shape->size_of[l], end = shape->sizes[i].kv_heads,
                     heads = retrieval_heads(m, l, end),
                     stay = resident ? retrieval_heads(m, l, size_min(resident[l], end)) : 0;
        all = size_plus(all, size_times(stay, m->size[i].head_bytes));
        tails = size_plus(tails, size_times(heads - stay, m->size[i].tail_bytes));
        offloaded += heads - stay;
    }
    for (size_t i = 0; i < shape->n_sizes; i++)
        buffer =
            size_max(buffer, size_times(widest(m, &shape->sizes[i], group), m->size[i].head_bytes));
    return offloaded ? size_plus(all, size_plus(size_times(2, buffer), tails)) : all;
}

/* Bytes with all heads in memory. */
static size_t bytes_of_all(const struct offload_memory *m)
{
    size_t all = m->streaming_bytes;
    for (size_t l = 0; l < m->shape->layers; l++)
        all = size_plus(all, size_times(retrieval_heads(m, l, kv_sizes_of(m->shape, l)->kv_heads),
                                        m->size[m->shape->size_of[l]].head_bytes));
    return all;
}

/* Chooses the number of heads per group: the smallest that takes GROUP_MS to read in every layer, reduced until
 * the cache fits its memory budget. */
static size_t choose_group(const struct offload_memory *m)
{
    const size_t heads = kv_shape_heads(m->shape);
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < m->shape->n_sizes; i++)
        least = size_min(least, m->size[i].head_bytes);
    const double worth = ceil(m->bytes_per_ms * GROUP_MS / (double)least);
    size_t group = worth < (double)heads ? size_max(1, (size_t)worth) : heads;
    if (m->before && 2 * group > m->before)
        group = m->before;
    while (group > 1 && offload_plan_bytes(m, group, NULL) > m->ram)
        group--;
    /* makes groups equally large without changing their number */
    return div_up(heads, div_up(heads, group));
}

/* Keeps as many groups in memory as the budget allows, all but one at most. */
static void keep_groups(struct offload_plan *plan, const struct offload_memory *m, size_t *resident)
{
    const struct kv_shape *shape = m->shape;
    size_t groups = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        groups += div_up(kv_sizes_of(shape, l)->kv_heads, plan->group);
        if (resident)
            resident[l] = 0;
    }
    for (size_t end = plan->group; groups > 1; end += plan->group)
        for (size_t l = 0; l < shape->layers && groups > 1; l++) {
            const size_t i = shape->size_of[l], heads = shape->sizes[i].kv_heads;
            if (end >= heads + plan->group)
                continue;
            /* bytes that a group kept in memory adds; the tails of its heads are counted already */
            const size_t more = widest(m, &shape->sizes[i], plan->group) *
                                (m->size[i].head_bytes - m->size[i].tail_bytes);
            if (more > m->ram - plan->bytes)
                return;
            plan->bytes += more;
            groups--;
            if (resident)
                resident[l] = size_min(end, heads);
        }
}

bool offload_plan_make(struct offload_plan *plan, const struct offload_memory *m, size_t *resident)
{
    const size_t heads = kv_shape_heads(m->shape);
    *plan = (struct offload_plan){.bytes = bytes_of_all(m)};
    if (plan->bytes <= m->ram && !m->before)
        return true;
    plan->group = m->group ? size_min(m->group, heads) : choose_group(m);
    plan->bytes = offload_plan_bytes(m, plan->group, NULL);
    if (plan->bytes > m->ram)
        return false;
    keep_groups(plan, m, resident);
    return true;
}
