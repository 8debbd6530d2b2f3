/* Which heads of a cache stay in memory. */
#include "kv/kv_plan.h"

#include <math.h>

/* Reading a group should take so long: some twenty times what it costs besides. */
#define GROUP_MS 2.0

size_t kv_plan_all(const struct kv_memory *m)
{
    return m->layers * m->kv_heads - (m->sparse ? m->sparse->n : 0);
}

/* Heads of a group that are read, at most. */
static size_t widest(const struct kv_memory *m, size_t group)
{
    return m->sparse ? kv_sparse_widest(m->sparse, size_max(group, 1)) : group;
}

size_t kv_plan_bytes(const struct kv_memory *m, size_t group, size_t heads)
{
    const size_t others = kv_plan_all(m) - heads;
    const size_t all = size_plus(size_times(heads, m->head_bytes), m->sparse_bytes);
    if (!others)
        return all;
    const size_t buffers = size_times(2 * widest(m, group), m->head_bytes);
    const size_t tails = size_plus(size_times(others, m->tail_bytes), m->other_bytes);
    return size_plus(all, size_plus(buffers, tails));
}

/* The smallest that is worth a request, of those that fit. */
static size_t choose_group(const struct kv_memory *m)
{
    const double worth = ceil(m->bytes_per_ms * GROUP_MS / (double)m->head_bytes);
    size_t group = worth < (double)m->kv_heads ? size_max(1, (size_t)worth) : m->kv_heads;
    if (m->before && 2 * group > m->before)
        group = m->before;
    while (group > 1 && kv_plan_bytes(m, group, 0) > m->ram)
        group--;
    return div_up(m->kv_heads, div_up(m->kv_heads, group)); /* as many groups, of one size */
}

bool kv_plan_make(struct kv_plan *plan, const struct kv_memory *m)
{
    *plan = (struct kv_plan){.bytes = kv_plan_bytes(m, 0, kv_plan_all(m))};
    if (plan->bytes <= m->ram && !m->before)
        return true;
    plan->group = m->group ? size_min(m->group, m->kv_heads) : choose_group(m);
    plan->bytes = kv_plan_bytes(m, plan->group, 0);
    if (plan->bytes > m->ram)
        return false;
    /* A head that stays has no tail; the last group of a layer may be a smaller one. */
    const size_t more = widest(m, plan->group) * (m->head_bytes - m->tail_bytes);
    const size_t groups = m->layers * div_up(m->kv_heads, plan->group);
    plan->groups = size_min((m->ram - plan->bytes) / size_max(more, 1), groups - 1);
    plan->bytes += plan->groups * more;
    return true;
}

size_t kv_plan_heads(const struct kv_plan *plan, const struct kv_memory *m, size_t layer)
{
    if (!plan->group)
        return m->kv_heads;
    const size_t stay = plan->groups > layer ? div_up(plan->groups - layer, m->layers) : 0;
    return size_min(stay * plan->group, m->kv_heads);
}
