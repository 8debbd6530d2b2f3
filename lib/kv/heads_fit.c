/* Which heads stay in memory as rows become more, and what is in memory then. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kv/kv_heads.h"

/* Bytes of a head's K or V that stay in memory, where those before it went to the file. */
static size_t tail_of(const struct kv *kv, size_t seq, size_t rows, size_t step)
{
    const struct heads *h = heads_of(kv);
    if (h->seq[seq].copying)
        return heads_begun(kv, rows) - heads_whole(kv, rows);
    const size_t n = kv->seq[seq].n,
                 /* fewest heads stay of the last layer */
        from = h->group ? h->seq[seq].flushed[kv->setup.shape.layers - 1] : heads_whole(kv, n);
    return step <= KV_PIECE_ROWS ? heads_begun(kv, rows) - from
                                 : heads_begun(kv, n) - from + 2 * SPILL_BLOCK;
}

size_t heads_passing(const struct kv *kv, size_t step, bool copying)
{
    const size_t rows = heads_begun(kv, step);
    if (copying)
        return 2 * size_min(rows, HEADS_STRIP_BYTES);
    return step > KV_PIECE_ROWS ? size_times(2 * kv->setup.shape.kv_heads * 2, rows) : 0;
}

/* What all sequences take when `seq` gets `step` more rows: those of long steps go to the file layer by layer. */
static struct kv_memory memory_of(const struct kv *kv, size_t seq, size_t step)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const struct kv_sparse *sparse = &heads_of(kv)->sparse;
    struct kv_memory m = {.ram = kv->spec.spill.ram,
                          .layers = shape->layers,
                          .kv_heads = shape->kv_heads,
                          .group = kv->spec.spill.group,
                          .bytes_per_ms = spill_pace(heads_of(kv)->spill),
                          .sparse = sparse->n ? sparse : NULL};
    for (size_t s = 0; s < kv->setup.n_seqs; s++) {
        const size_t more = s == seq ? step : kv->seq[s].pending, rows = kv->seq[s].n + more;
        if (!rows)
            continue;
        m.head_bytes += 2 * heads_begun(kv, rows);
        m.tail_bytes += 2 * tail_of(kv, s, rows, more);
        m.sparse_bytes += sparse->n * 2 * (heads_begun(kv, rows) - heads_gap(kv, s));
        m.other_bytes += heads_passing(kv, more, heads_of(kv)->seq[s].copying);
    }
    return m;
}

static size_t heads_that_stay(const struct kv *kv)
{
    size_t heads = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        heads += kv_sparse_others(&heads_of(kv)->sparse, l, heads_of(kv)->stay[l]);
    return heads;
}

/* Tells the statistics what is in memory. */
void heads_count(struct kv *kv, size_t seq, size_t step)
{
    struct heads *h = heads_of(kv);
    const struct kv_memory m = memory_of(kv, seq, step);
    const size_t bytes = m.head_bytes ? kv_plan_bytes(&m, h->group, heads_that_stay(kv)) : 0;
    kv_count_bytes(kv, bytes > h->counted ? bytes - h->counted : 0,
                   bytes < h->counted ? h->counted - bytes : 0);
    h->counted = bytes;
}

/* Fewer heads stay as rows become more, and groups become smaller: never the other way. */
static int apply(struct kv *kv, const struct kv_memory *m, struct kv_plan *plan, struct err *err)
{
    struct heads *h = heads_of(kv);
    const size_t layers = kv->setup.shape.layers;
    size_t *stay = mem_alloc(layers, sizeof *stay);
    if (!stay)
        return err_set(err, "out of memory for the cache's tables");
    bool same = plan->group == h->group;
    for (size_t l = 0; l < layers; l++) {
        const size_t heads = kv_plan_heads(plan, m, l);
        stay[l] = size_min(heads, h->stay[l] / plan->group * plan->group);
        same = same && stay[l] == h->stay[l];
    }
    for (size_t s = 0; s < kv->setup.n_seqs && plan->group != h->group; s++)
        buffers_clear(kv, s);
    const int rc = same ? 0 : heads_settle(kv, stay, plan->group, err);
    free(stay);
    if (rc == 0)
        kv->setup.heads_at_once = plan->group;
    return rc;
}

/* What sequences that have rows, or get some, may come to: rows of the longest, and bytes of all; 0: no more than they have now. */
static size_t expected(const struct kv *kv, size_t seq, size_t now, size_t *bytes)
{
    size_t most = 0;
    *bytes = 0;
    for (size_t i = 0; i < kv->setup.n_seqs; i++) {
        const struct kv_seq *s = &kv->seq[i];
        if (!s->n && i != seq)
            continue;
        most = size_max(most, s->expected);
        *bytes = size_plus(*bytes, kv->policy->least(kv, size_max(s->n, s->expected), s->step));
    }
    return most > now ? most : 0;
}

/* A run that gives as much as the next step takes would end at the step after it. */
static int refuse(const struct kv *kv, size_t seq, size_t step, const struct kv_plan *plan,
                  struct err *err)
{
    const size_t now = kv->seq[seq].n + step;
    char whole[96] = "";
    size_t bytes;
    const size_t most = expected(kv, seq, now, &bytes);
    if (most && bytes > plan->bytes)
        snprintf(whole, sizeof whole, ", and up to %zu for all %zu that may come", bytes, most);
    return err_set(
        err,
        "the cache needs %zu bytes of memory for %zu row%s%s, with its heads read %zu at a time, and "
        "ram=%zu allows less: give more, or fewer rows, sequences or tokens at a time",
        plan->bytes, now, now == 1 ? "" : "s", whole, plan->group, kv->spec.spill.ram);
}

int heads_fit(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_memory m = memory_of(kv, seq, rows);
    struct kv_plan plan;
    m.before = heads_of(kv)->group;
    if (!kv_plan_make(&plan, &m))
        return refuse(kv, seq, rows, &plan, err);
    return plan.group ? apply(kv, &m, &plan, err) : 0;
}
