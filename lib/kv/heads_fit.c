/* Which heads stay in memory as rows become more, and what is in memory then. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kv/kv_heads.h"

/* Where a sequence is when it gets more rows. */
struct getting {
    size_t n, more;
    size_t from; /* bytes of a head's K or V that are in the file */
    size_t gap;  /* bytes of a sparse head's that were given back */
    bool copying;
};

/* Bytes of a head's K or V that stay in memory, where those before it went to the file. */
static size_t tail_of(const struct kv *kv, const struct getting *g)
{
    const size_t begun = heads_begun(kv, g->n + g->more);
    if (g->copying)
        return begun - heads_whole(kv, g->n + g->more);
    return g->more <= KV_PIECE_ROWS ? begun - g->from
                                    : heads_begun(kv, g->n) - g->from + 2 * SPILL_BLOCK;
}

size_t heads_passing(const struct kv *kv, size_t step, bool copying)
{
    const size_t rows = heads_begun(kv, step);
    if (copying)
        return 2 * size_min(rows, HEADS_STRIP_BYTES);
    return step > KV_PIECE_ROWS ? size_times(2 * kv->setup.shape.kv_heads * 2, rows) : 0;
}

static struct kv_memory memory_of_none(const struct kv *kv)
{
    const struct kv_sparse *sparse = &heads_of(kv)->sparse;
    return (struct kv_memory){.ram = kv->spec.spill.ram,
                              .layers = kv->setup.shape.layers,
                              .kv_heads = kv->setup.shape.kv_heads,
                              .group = kv->spec.spill.group,
                              .bytes_per_ms = spill_pace(heads_of(kv)->spill),
                              .sparse = sparse->n ? sparse : NULL};
}

static void add(struct kv_memory *m, const struct kv *kv, const struct getting *g)
{
    const size_t begun = heads_begun(kv, g->n + g->more);
    m->head_bytes += 2 * begun;
    m->tail_bytes += 2 * tail_of(kv, g);
    m->sparse_bytes += heads_of(kv)->sparse.n * 2 * (begun - g->gap);
    m->other_bytes += heads_passing(kv, g->more, g->copying);
}

/* What all sequences take when `seq` gets `step` more rows: those of long steps go to the file layer by layer. */
static struct kv_memory memory_of(const struct kv *kv, size_t seq, size_t step)
{
    const struct heads *h = heads_of(kv);
    const size_t last = kv->setup.shape.layers - 1; /* fewest heads stay of that layer */
    struct kv_memory m = memory_of_none(kv);
    for (size_t s = 0; s < kv->setup.n_seqs; s++) {
        const size_t n = kv->seq[s].n, more = s == seq ? step : kv->seq[s].pending;
        const struct getting g = {n, more, h->group ? h->seq[s].flushed[last] : heads_whole(kv, n),
                                  n + more ? heads_gap(kv, s) : 0, h->seq[s].copying};
        if (n + more)
            add(&m, kv, &g);
    }
    return m;
}

/* ---- of a prompt that has not come yet ---- */

/* Bytes that it takes, where they are too many; *before is the group so far. */
static size_t beyond(struct kv_memory *m, size_t *before)
{
    struct kv_plan plan;
    m->before = *before;
    const bool fits = kv_plan_make(&plan, m);
    *before = plan.group;
    return fits ? 0 : plan.bytes;
}

/* Sequences that each get all rows of the one before, as beams do. */
static size_t copies_beyond(const struct kv *kv, const struct getting *prompt, size_t width,
                            size_t *before)
{
    const size_t rows = prompt->n + prompt->more, whole = heads_whole(kv, rows);
    const struct getting first = {rows, 0, *before ? prompt->from : whole, prompt->gap, false},
                         there = {rows, 0, whole, prompt->gap, false}, coming = {0, rows, 0, 0, true};
    size_t most = 0;
    for (size_t n = 1; n < width; n++) {
        struct kv_memory m = memory_of_none(kv);
        add(&m, kv, n == 1 ? &first : &there);
        for (size_t i = 1; i < n; i++)
            add(&m, kv, &there);
        add(&m, kv, &coming);
        most = size_max(most, beyond(&m, before));
    }
    return most;
}

size_t heads_beyond(const struct kv *kv, size_t rows, size_t step, size_t width)
{
    struct getting g = {0};
    size_t most = 0, before = 0;
    for (size_t n = 0; n < rows; n += step) {
        struct kv_memory m = memory_of_none(kv);
        /* Rows of a short step are written when the next one begins. */
        g.from = heads_whole(kv, before && g.more <= KV_PIECE_ROWS ? g.n : n);
        g.n = n;
        g.more = size_min(step, rows - n);
        g.gap = heads_gap_of(kv, n);
        add(&m, kv, &g);
        most = size_max(most, beyond(&m, &before));
    }
    return most ? most : copies_beyond(kv, &g, width, &before);
}

/* ---- of those that are there ---- */

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
