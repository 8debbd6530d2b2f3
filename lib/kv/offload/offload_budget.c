/* Decides which heads stay in memory as sequences grow, and computes the memory needed. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kv/offload/offload_heads.h"

/* A sequence of n rows to which `more` are being added: input of the memory computation. */
struct growing {
    size_t n, more;
    size_t from;  /* bytes of a head's K or V that are in the file */
    size_t gap;   /* bytes of a streaming head's K or V that were released */
    bool copying; /* the added rows are copied by a fork */
};

/* Bytes of an offloaded head's K or V that are in memory because they are not in the file yet. */
static size_t tail_of(const struct kv *kv, const struct growing *g)
{
    const size_t end = offload_blocks_up(kv, g->n + g->more);
    if (g->copying)
        return end - offload_blocks_down(kv, g->n + g->more);
    return g->more <= KV_CHUNK_ROWS ? end - g->from
                                    : offload_blocks_up(kv, g->n) - g->from + 2 * OFFLOAD_BLOCK;
}

static struct offload_memory memory_of_none(const struct kv *kv)
{
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    return (struct offload_memory){.ram = kv->spec.offload.ram,
                                   .layers = kv->setup.shape.layers,
                                   .kv_heads = kv->setup.shape.kv_heads,
                                   .group = kv->spec.offload.group,
                                   .bytes_per_ms = offload_file_rate(offload_of(kv)->offload_file),
                                   .streaming = streaming->n ? streaming : NULL};
}

static void add(struct offload_memory *m, const struct kv *kv, const struct growing *g)
{
    const size_t end = offload_blocks_up(kv, g->n + g->more);
    m->head_bytes += kv_matrices(kv) * end;
    m->tail_bytes += kv_matrices(kv) * tail_of(kv, g);
    m->streaming_bytes += offload_of(kv)->streaming.n * kv_matrices(kv) * (end - g->gap);
    m->other_bytes += offload_in_transit(kv, g->more, g->copying);
}

/* Memory needed by all sequences while `rows` rows are added to sequence `seq`. */
static struct offload_memory memory_of(const struct kv *kv, size_t seq, size_t rows)
{
    const struct offload *h = offload_of(kv);
    const size_t last = kv->setup.shape.layers - 1; /* the layer with the fewest heads in memory */
    struct offload_memory m = memory_of_none(kv);
    for (size_t s = 0; s < kv->setup.n_seqs; s++) {
        const size_t n = kv->seq[s].n, more = s == seq ? rows : kv->seq[s].pending;
        const size_t from = h->group ? h->seq[s].flushed[last] : offload_blocks_down(kv, n);
        const struct growing g = {n, more, from, n + more ? offload_gap(kv, s) : 0, h->seq[s].copying};
        if (n + more)
            add(&m, kv, &g);
    }
    return m;
}

static size_t heads_in_memory(const struct kv *kv)
{
    size_t heads = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        heads += kv_retrieval_count(&offload_of(kv)->streaming, l, offload_of(kv)->resident[l]);
    return heads;
}

void offload_count(struct kv *kv, size_t seq, size_t rows)
{
    struct offload *h = offload_of(kv);
    const struct offload_memory m = memory_of(kv, seq, rows);
    const size_t bytes = m.head_bytes ? offload_plan_bytes(&m, h->group, heads_in_memory(kv)) : 0;
    kv_count_memory(kv, bytes > h->counted ? bytes - h->counted : 0,
                    bytes < h->counted ? h->counted - bytes : 0);
    h->counted = bytes;
}

/* Applies a plan: offloads heads and sets the group size. Neither the number of heads in memory nor
 * the group size ever increases here. */
static int apply(struct kv *kv, const struct offload_memory *m, struct offload_plan *plan,
                 struct err *err)
{
    struct offload *h = offload_of(kv);
    const size_t layers = kv->setup.shape.layers;
    size_t *resident = mem_alloc(layers, sizeof *resident);
    if (!resident)
        return err_no_memory(err, "the cache's tables");
    bool same = plan->group == h->group;
    for (size_t l = 0; l < layers; l++) {
        const size_t heads = offload_plan_heads(plan, m, l);
        resident[l] = size_min(heads, h->resident[l] / plan->group * plan->group);
        same = same && resident[l] == h->resident[l];
    }
    for (size_t s = 0; s < kv->setup.n_seqs && plan->group != h->group; s++)
        offload_buffers_clear(kv, s);
    const int rc = same ? 0 : offload_set_resident(kv, resident, plan->group, err);
    free(resident);
    if (rc == 0)
        kv->offload.heads_at_once = plan->group;
    return rc;
}

void offload_expect(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    if (!kv->offload.ram)
        return;
    if (kv->other)
        offload_expect(kv->other, seq, rows, step);
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    s->expected = size_min(rows, kv->setup.shape.max_rows);
    s->step = size_min(rows, step);
}

/* Returns the largest expected length of the sequences in flight, `seq` included, or 0 if that is at
 * most `now`, which `seq` needs at once. Sets *bytes to the memory that all these sequences need at
 * their expected lengths. */
static size_t expected(const struct kv *kv, size_t seq, size_t now, size_t *bytes)
{
    size_t most = 0;
    *bytes = 0;
    for (size_t i = 0; i < kv->setup.n_seqs; i++) {
        const struct offload_seq *s = &offload_of(kv)->seq[i];
        const size_t n = kv->seq[i].n;
        if (!n && i != seq)
            continue;
        most = size_max(most, s->expected);
        *bytes = size_plus(*bytes, offload_floor(kv, size_max(n, s->expected), s->step));
    }
    return most > now ? most : 0;
}

static int refuse(const struct kv *kv, size_t seq, size_t step, const struct offload_plan *plan,
                  struct err *err)
{
    const size_t now = kv->seq[seq].n + step, needed = offload_scale(&kv->spec.offload, plan->bytes);
    char later[96] = "";
    size_t bytes;
    const size_t most = expected(kv, seq, now, &bytes);
    if (most && bytes > needed)
        snprintf(later, sizeof later, " and up to %zu bytes for %zu", bytes, most);
    return err_set(err,
                   "the KV cache needs %zu bytes of memory for %zu token%s%s, reading %zu KV head%s at "
                   "a time; ram=%zu is too small: raise it, or use fewer tokens, a smaller -np or "
                   "--chunk",
                   needed, now, now == 1 ? "" : "s", later, plan->group, plan->group == 1 ? "" : "s",
                   size_max(kv->spec.offload.ram, kv->spec.offload.ram_all));
}

int offload_budget(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct offload_memory m = memory_of(kv, seq, rows);
    struct offload_plan plan;
    m.before = offload_of(kv)->group;
    if (!offload_plan_make(&plan, &m))
        return refuse(kv, seq, rows, &plan, err);
    return plan.group ? apply(kv, &m, &plan, err) : 0;
}

/* Returns the bytes needed if they exceed the memory budget, else 0. *group: heads read from the
 * file at a time, on entry the current number, on return the planned one. */
static size_t excess(struct offload_memory *m, size_t *group)
{
    struct offload_plan plan;
    m->before = *group;
    const bool fits = offload_plan_make(&plan, m);
    *group = plan.group;
    return fits ? 0 : plan.bytes;
}

/* Returns the bytes needed to copy the prompt for `width` beams, one after the other, if they
 * exceed the memory budget; else 0. */
static size_t copies_excess(const struct kv *kv, const struct growing *prompt, size_t width,
                            size_t group)
{
    const size_t rows = prompt->n + prompt->more, whole = offload_blocks_down(kv, rows);
    const struct growing first = {rows, 0, group ? prompt->from : whole, prompt->gap, false},
                         copied = {rows, 0, whole, prompt->gap, false}, copy = {0, rows, 0, 0, true};
    size_t most = 0;
    for (size_t n = 1; n < width; n++) {
        struct offload_memory m = memory_of_none(kv);
        add(&m, kv, n == 1 ? &first : &copied);
        for (size_t i = 1; i < n; i++)
            add(&m, kv, &copied);
        add(&m, kv, &copy);
        most = size_max(most, excess(&m, &group));
    }
    return most;
}

/* Every chunk of the prompt is checked, as any can need the most memory: entries are written in
 * whole blocks, and groups only become smaller. Once heads are offloaded, the entries of a short
 * chunk are written to the file one forward pass late. */
size_t offload_prompt_excess(const struct kv *kv, size_t rows, size_t chunk, size_t width)
{
    if (!kv->offload.ram)
        return 0;
    const size_t other = kv->other ? offload_prompt_excess(kv->other, rows, chunk, width) : 0;
    const struct kv largest = kv_of_largest_shard(kv);
    struct growing g = {0};
    size_t most = 0, group = 0;
    for (size_t n = 0; n < rows; n += chunk) {
        struct offload_memory m = memory_of_none(&largest);
        g.from = offload_blocks_down(kv, group && g.more <= KV_CHUNK_ROWS ? g.n : n);
        g.n = n;
        g.more = size_min(chunk, rows - n);
        g.gap = offload_gap_of(kv, n);
        add(&m, &largest, &g);
        most = size_max(most, excess(&m, &group));
    }
    most = most ? most : copies_excess(&largest, &g, width, group);
    return size_max(offload_scale(&kv->spec.offload, most), other);
}
