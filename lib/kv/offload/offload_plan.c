/* Decides which KV heads stay in memory. */
#include "kv/offload/offload_plan.h"

#include <math.h>

/* Minimum time to read a group of heads, in ms: about twenty times the overhead of a request. */
#define GROUP_MS 2.0

/* Number of heads in all layers, without streaming heads. */
static size_t all_heads(const struct offload_memory *m)
{
    return m->layers * m->kv_heads - (m->streaming ? m->streaming->n : 0);
}

/* Maximum number of heads read from the file for one group: only its retrieval heads are. */
static size_t widest(const struct offload_memory *m, size_t group)
{
    return m->streaming ? kv_retrieval_widest(m->streaming, size_max(group, 1)) : group;
}

size_t offload_plan_bytes(const struct offload_memory *m, size_t group, size_t heads)
{
    const size_t others = all_heads(m) - heads;
    const size_t all = size_plus(size_times(heads, m->head_bytes), m->streaming_bytes);
    if (!others)
        return all;
    const size_t buffers = size_times(2 * widest(m, group), m->head_bytes);
    const size_t tails = size_plus(size_times(others, m->tail_bytes), m->other_bytes);
    return size_plus(all, size_plus(buffers, tails));
}

/* Chooses the number of heads per group: the smallest that takes GROUP_MS to read, reduced until
 * the cache fits its memory budget. */
static size_t choose_group(const struct offload_memory *m)
{
    const double worth = ceil(m->bytes_per_ms * GROUP_MS / (double)m->head_bytes);
    size_t group = worth < (double)m->kv_heads ? size_max(1, (size_t)worth) : m->kv_heads;
    if (m->before && 2 * group > m->before)
        group = m->before;
    while (group > 1 && offload_plan_bytes(m, group, 0) > m->ram)
        group--;
    /* makes groups equally large without changing their number */
    return div_up(m->kv_heads, div_up(m->kv_heads, group));
}

bool offload_plan_make(struct offload_plan *plan, const struct offload_memory *m)
{
    *plan = (struct offload_plan){.bytes = offload_plan_bytes(m, 0, all_heads(m))};
    if (plan->bytes <= m->ram && !m->before)
        return true;
    plan->group = m->group ? size_min(m->group, m->kv_heads) : choose_group(m);
    plan->bytes = offload_plan_bytes(m, plan->group, 0);
    if (plan->bytes > m->ram)
        return false;
    /* bytes that each group kept in memory adds; the tails of its heads are counted already */
    const size_t more = widest(m, plan->group) * (m->head_bytes - m->tail_bytes);
    const size_t groups = m->layers * div_up(m->kv_heads, plan->group);
    plan->groups = size_min((m->ram - plan->bytes) / size_max(more, 1), groups - 1);
    plan->bytes += plan->groups * more;
    return true;
}

size_t offload_plan_heads(const struct offload_plan *plan, const struct offload_memory *m, size_t layer)
{
    if (!plan->group)
        return m->kv_heads;
    const size_t stay = plan->groups > layer ? div_up(plan->groups - layer, m->layers) : 0;
    return size_min(stay * plan->group, m->kv_heads);
}
