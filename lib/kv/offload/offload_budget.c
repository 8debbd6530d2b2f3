/* Decides which heads stay in memory as sequences grow, and computes the memory needed. */
#include "base/mem.h"
#include "kv/offload/offload_heads.h"

/* A sequence of n rows to which `more` are being added: input of the memory computation. */
struct growing {
    size_t n, more;
    size_t in_file;        /* rows of a head that are in the file, rounded down to blocks .. */
    const size_t *flushed; /* .. unless this has the bytes, [kv.n_matrices] */
    size_t gap;            /* bytes of a streaming head's K and V that were released */
    bool copying;          /* the added rows are copied by a fork */
};

/* The last of the layers with the same sizes: the one with the fewest heads in memory. */
static size_t last_layer_of(const struct kv *kv, size_t sizes)
{
    size_t last = kv->setup.shape.layers - 1;
    while (last && kv->setup.shape.size_of[last] != sizes)
        last--;
    return last;
}

/* Bytes of an offloaded head's K or V that are in memory because they are not in the file yet. */
static size_t tail_of(const struct kv *kv, const struct growing *g, size_t sizes, size_t matrix,
                      size_t bytes)
{
    const size_t end = offload_blocks_up(bytes, offload_held(kv, g->n + g->more)) +
                       offload_slack(kv, bytes),
                 last = kv->head[kv->first_head[last_layer_of(kv, sizes)]].matrix + matrix,
                 from = g->flushed ? g->flushed[last] : offload_blocks_down(bytes, g->in_file);
    if (g->copying)
        return end - offload_blocks_down(bytes, g->n + g->more);
    return g->more <= KV_CHUNK_ROWS
               ? end - from
               : offload_blocks_up(bytes, g->n) - from + 2 * OFFLOAD_BLOCK + offload_slack(kv, bytes);
}

static struct offload_memory memory_of_none(const struct kv *kv, const struct kv_shape *shape)
{
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    return (struct offload_memory){.ram = kv->offload.ram,
                                   .shape = shape,
                                   .group = kv->spec.offload.group,
                                   .bytes_per_ms = offload_file_rate(offload_of(kv)->offload_file),
                                   .streaming = streaming->n ? streaming : NULL};
}

/* Bytes of `rows` rows of K and V of one head in layers of these sizes, each rounded up to whole blocks. */
static size_t head_blocks(const struct kv *kv, const struct kv_sizes *sizes, size_t rows)
{
    size_t bytes = 0;
    rows = offload_held(kv, rows);
    for (size_t m = 0; m < kv_matrices(sizes); m++)
        bytes = size_plus(bytes, offload_blocks_up(kv_sizes_row_bytes(sizes, m), rows));
    return bytes;
}

static size_t slack_of(const struct kv *kv, const struct kv_sizes *sizes)
{
    size_t bytes = 0;
    for (size_t m = 0; m < kv_matrices(sizes); m++)
        bytes += offload_slack(kv, kv_sizes_row_bytes(sizes, m));
    return bytes;
}

/* Bytes in memory on their way to the file. `copying`: the byte range that a fork copies at a time;
 * else K and V of two layers of a forward pass of `step` rows, or 0 if it is short (kv_rows.h). */
static size_t in_transit(const struct kv *kv, const struct kv_shape *shape, size_t step, bool copying)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++) {
        const struct kv_sizes *sizes = &shape->sizes[i];
        for (size_t m = 0; m < kv_matrices(sizes) && copying; m++)
            most = size_max(most, size_min(offload_blocks_up(kv_sizes_row_bytes(sizes, m), step),
                                           OFFLOAD_STRIP_BYTES));
        if (!copying && step > KV_CHUNK_ROWS)
            most = size_max(most, size_times(2 * sizes->kv_heads, head_blocks(kv, sizes, step)));
    }
    return most;
}

static void add_growing(struct offload_memory *m, const struct kv *kv, const struct growing *g)
{
    for (size_t i = 0; i < m->shape->n_sizes; i++) {
        const struct kv_sizes *sizes = &m->shape->sizes[i];
        m->size[i].head_bytes += head_blocks(kv, sizes, g->n + g->more);
        for (size_t v = 0; v < kv_matrices(sizes); v++)
            m->size[i].tail_bytes += tail_of(kv, g, i, v, kv_sizes_row_bytes(sizes, v));
    }
    m->streaming_bytes +=
        offload_of(kv)->streaming.n * (head_blocks(kv, &m->shape->sizes[0], g->n + g->more) - g->gap);
    m->more_bytes += in_transit(kv, m->shape, g->more, g->copying);
}

/* Memory needed by all sequences while `rows` rows are added to sequence `seq`. */
static struct offload_memory memory_of(const struct kv *kv, size_t seq, size_t rows)
{
    const struct offload *h = offload_of(kv);
    struct offload_memory m = memory_of_none(kv, &kv->setup.shape);
    for (size_t s = 0; s < kv->setup.n_seqs; s++) {
        const size_t n = kv->seq[s].n, more = s == seq ? rows : kv->seq[s].pending;
        const struct growing g = {n,
                                  more,
                                  n,
                                  h->group ? h->seq[s].flushed : NULL,
                                  n + more ? offload_gap(kv, s) : 0,
                                  h->seq[s].copying};
        if (n + more)
            add_growing(&m, kv, &g);
    }
    return m;
}

void offload_count(struct kv *kv, size_t seq, size_t rows)
{
    struct offload *h = offload_of(kv);
    const struct offload_memory m = memory_of(kv, seq, rows);
    const size_t bytes = m.size[0].head_bytes ? offload_plan_bytes(&m, h->group, h->resident) : 0;
    kv_count_memory(kv, bytes > h->counted ? bytes - h->counted : 0,
                    bytes < h->counted ? h->counted - bytes : 0);
    h->counted = bytes;
}

/* Applies a plan: offloads heads and sets the group size. Neither the number of heads in memory nor
 * the group size ever increases here. `resident` are the heads of each layer that the plan keeps. */
static int apply_plan(struct kv *kv, const struct offload_plan *plan, size_t *resident, struct err *err)
{
    struct offload *h = offload_of(kv);
    bool same = plan->group == h->group;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const size_t heads = kv_layer_sizes(kv, l)->kv_heads, now = h->resident[l];
        const bool one_group = heads <= plan->group && now == heads;
        resident[l] = size_min(resident[l], one_group ? heads : now / plan->group * plan->group);
        same = same && resident[l] == h->resident[l];
    }
    for (size_t s = 0; s < kv->setup.n_seqs && plan->group != h->group; s++)
        offload_buffers_clear(kv, s);
    if (!same && offload_set_resident(kv, resident, plan->group, err) < 0)
        return -1;
    kv->offload.heads_at_once = plan->group;
    return 0;
}

void offload_expect(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    if (!kv->offload.ram)
        return;
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
    const size_t now = kv->seq[seq].n + step, needed = plan->bytes;
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
                   kv->offload.ram);
}

void offload_limit(struct kv *kv, size_t ram) { kv->spec.offload.ram = size_min(ram, kv->offload.ram); }

/* Plans within offload_limit(), or else with the least memory that the budget allows. */
static bool make_plan(const struct kv *kv, struct offload_plan *plan, struct offload_memory *m,
                      size_t *resident)
{
    m->ram = kv->spec.offload.ram;
    if (offload_plan_make(plan, m, resident))
        return true;
    m->ram = size_min(plan->bytes, kv->offload.ram);
    return offload_plan_make(plan, m, resident);
}

int offload_budget(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct offload_memory m = memory_of(kv, seq, rows);
    struct offload_plan plan;
    size_t *resident = mem_alloc(kv->setup.shape.layers, sizeof *resident);
    if (!resident)
        return err_no_memory(err, "the cache's tables");
    m.before = offload_of(kv)->group;
    const int rc = !make_plan(kv, &plan, &m, resident) ? refuse(kv, seq, rows, &plan, err)
                   : plan.group                        ? apply_plan(kv, &plan, resident, err)
                                                       : 0;
    free(resident);
    return rc;
}

/* Returns the bytes needed if they exceed the memory budget, else 0. *group: heads read from the
 * file at a time, on entry the current number, on return the planned one. */
static size_t excess(struct offload_memory *m, size_t *group)
{
    struct offload_plan plan;
    m->before = *group;
    const bool fits = offload_plan_make(&plan, m, NULL);
    *group = plan.group;
    return fits ? 0 : plan.bytes;
}

/* Returns the bytes needed to copy the prompt for `width` beams, one after the other, if they
 * exceed the memory budget; else 0. */
static size_t copies_excess(const struct kv *kv, const struct growing *prompt, size_t width,
                            size_t group)
{
    const size_t rows = prompt->n + prompt->more;
    const struct growing first = {rows, 0, group ? prompt->in_file : rows, NULL, prompt->gap, false},
                         copied = {rows, 0, rows, NULL, prompt->gap, false},
                         copy = {0, rows, 0, NULL, 0, true};
    size_t most = 0;
    for (size_t n = 1; n < width; n++) {
        struct offload_memory m = memory_of_none(kv, &kv->largest);
        add_growing(&m, kv, n == 1 ? &first : &copied);
        for (size_t i = 1; i < n; i++)
            add_growing(&m, kv, &copied);
        add_growing(&m, kv, &copy);
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
    struct growing g = {0};
    size_t most = 0, group = 0;
    for (size_t n = 0; n < rows; n += chunk) {
        struct offload_memory m = memory_of_none(kv, &kv->largest);
        g.in_file = group && g.more <= KV_CHUNK_ROWS ? g.n : n;
        g.n = n;
        g.more = size_min(chunk, rows - n);
        g.gap = offload_gap_of(kv, n);
        add_growing(&m, kv, &g);
        most = size_max(most, excess(&m, &group));
    }
    return most ? most : copies_excess(kv, &g, width, group);
}

/* ---- footprints ---- */

/* Bytes of a streaming head's K and V that are in memory in a sequence of `rows` rows. */
static size_t streaming_bytes(const struct kv *kv, size_t rows)
{
    return head_blocks(kv, kv_layer_sizes(kv, 0), rows) - offload_gap_of(kv, rows);
}

size_t offload_bytes(const struct kv *kv, const struct kv_shape *shape, size_t rows)
{
    const size_t streaming = offload_of(kv)->streaming.n;
    size_t bytes = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        const struct kv_sizes *sizes = kv_sizes_of(shape, l);
        bytes = size_plus(bytes, size_times(sizes->kv_heads, head_blocks(kv, sizes, rows)));
    }
    return bytes == SIZE_MAX || !streaming ? bytes : bytes - streaming * offload_gap_of(kv, rows);
}

/* The sum with all retrieval heads offloaded: two buffers, each of a group of heads; the tail of
 * every head, which has the rows of the last two short steps (kv_rows.h) and a block at either end;
 * the rows of a long step on their way to the file; and the streaming heads. */
size_t offload_floor(const struct kv *kv, size_t rows, size_t step)
{
    if (!kv->offload.ram)
        return 0;
    const struct kv_shape *shape = &kv->largest;
    struct offload_memory m = memory_of_none(kv, shape);
    for (size_t i = 0; i < shape->n_sizes; i++) {
        const struct kv_sizes *sizes = &shape->sizes[i];
        m.size[i].head_bytes = head_blocks(kv, sizes, rows);
        m.size[i].tail_bytes = step ? head_blocks(kv, sizes, 2 * size_min(step, KV_CHUNK_ROWS)) +
                                          kv_matrices(sizes) * 2 * OFFLOAD_BLOCK + slack_of(kv, sizes)
                                    : 0;
    }
    m.more_bytes =
        step ? size_max(in_transit(kv, shape, step, false), in_transit(kv, shape, rows, true)) : 0;
    m.streaming_bytes =
        size_times(offload_of(kv)->streaming.n,
                   size_plus(streaming_bytes(kv, rows), head_blocks(kv, kv_layer_sizes(kv, 0), step)));
    return offload_plan_bytes(&m, size_min(size_max(kv->spec.offload.group, 1), kv_shape_heads(shape)),
                              NULL);
}

/* Returns false once heads are offloaded, as some stay in the file until the cache is empty; also
 * if the larger shard of another rank may offload, or if there are streaming heads, which need
 * memory for a step's rows. */
bool offload_keeps_all(const struct kv *kv)
{
    return kv_shape_row_bytes(&kv->largest) <= kv_token_bytes(kv) && !kv->offload.heads_at_once &&
           !kv->spec.offload.streaming;
}
