/* Splits outputs over ranks, and all-gathers activations. */
#include "model/parallel/shard.h"

#include "base/clock.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "ranks/ranks_tags.h"
#include "base/threads.h"

/* ---- ranges ---- */

bool shard_replicates(const struct config *c, enum dim dim)
{
    return dim == DIM_EXPERTS || (dim >= DIM_LAYER_INPUT && dim <= DIM_LAUREL) ||
           dim == DIM_HIDDEN_WHOLE || dim == DIM_STATE_RANK ||
           (c->latent->kv_rank && (dim == DIM_KV || dim == DIM_Q_LORA)) ||
           (dim == DIM_STATE_KEYS && !config_splits_keys(c));
}

static size_t attn_groups(const struct config *c)
{
    return c->latent->kv_rank ? c->heads : c->kv_heads;
}

/* Heads of a recurrence that stay on one rank: those that share keys, if ranks have keys. */
static size_t state_group(const struct config *c)
{
    return config_splits_keys(c) ? c->recurrent->heads / c->recurrent->key_heads : 1;
}

size_t shard_most_ranks(const struct config *c)
{
    size_t groups = attn_groups(c);
    for (size_t l = 0; l < c->layers && !c->latent->kv_rank; l++)
        groups = size_min(groups, c->plan[l].kv_heads);
    if (!config_state_layers(c, 0, c->layers))
        return groups;
    return size_min(groups,
                    c->recurrent->heads ? c->recurrent->heads / state_group(c) : c->hidden / PACK_OUT);
}

/* Number of outputs that always stay on one rank: a GQA group of query heads, a KV head, or a block
 * of the packed layout. With latent attention, where all heads read the same KV entries, a head. */
static size_t unit_of(const struct config *c, enum dim dim)
{
    const size_t groups = attn_groups(c);
    switch (dim) {
    case DIM_Q: return c->heads / groups * config_query_dim(c);
    case DIM_ATTN_OUT: return config_attn_width(c) / groups;
    case DIM_K_B: return c->latent->kv_rank;
    case DIM_KV: return c->head_dim;
    case DIM_HEADS: return c->heads / groups;
    case DIM_STATE_HEADS: return c->recurrent->heads ? state_group(c) : PACK_OUT;
    case DIM_STATE_DECAYS:
        return unit_of(c, DIM_STATE_HEADS) * (c->recurrent->by_row ? c->recurrent->key_dim : 1);
    case DIM_STATE_VALUES:
        return c->recurrent->heads ? state_group(c) * c->recurrent->value_dim : PACK_OUT;
    case DIM_STATE_KEYS: return c->recurrent->key_dim;
    default: return PACK_OUT;
    }
}

struct shard_range shard_range(const struct config *c, enum dim dim, size_t rank, size_t size)
{
    const size_t width = config_dim(c, dim);
    if (shard_replicates(c, dim))
        return (struct shard_range){0, width};
    const size_t unit = unit_of(c, dim), units = div_up(width, unit);
    const size_t first = size_min(width, units * rank / size * unit);
    const size_t end = size_min(width, units * (rank + 1) / size * unit);
    return (struct shard_range){first, end - first};
}

struct shard_range shard_experts(const struct config *c, size_t rank, size_t size)
{
    const size_t first = c->moe->experts * rank / size;
    return (struct shard_range){first, c->moe->experts * (rank + 1) / size - first};
}

static struct shard_range range_of(const struct config *c, enum dim dim, const struct ranks *ranks)
{
    return ranks ? shard_range(c, dim, (size_t)ranks->rank, (size_t)ranks->size)
                 : (struct shard_range){0, config_dim(c, dim)};
}

/* The tensor-parallel ranks, or NULL. */
static struct ranks *tensor_ranks(const struct model *model)
{
    return model->pipeline_parallel ? NULL : model->ranks;
}

struct config shard_config(const struct model *model, size_t layer)
{
    struct config sizes;
    const struct config all = *config_of_layer(&model->config, layer, &sizes);
    const struct ranks *ranks = tensor_ranks(model);
    struct config own = all;
    if (all.heads) {
        own.heads = range_of(&all, DIM_Q, ranks).n / config_query_dim(&own);
        own.kv_heads = range_of(&all, DIM_KV, ranks).n / own.head_dim;
    }
    return own;
}

struct shard_shapes shard_shapes_all(const struct model *model, size_t max_rows,
                                     const struct cache_types *types)
{
    return (struct shard_shapes){config_kv_shape(&model->config, max_rows, types),
                                 config_state_shape(&model->config)};
}

/* The state of a rank's heads, or channels, in all layers. */
static struct state_shape state_of(const struct config *c, size_t rank, size_t size)
{
    struct state_shape shape = config_state_shape(c);
    if (!shape.conv)
        return shape;
    if (shape.heads) {
        const struct shard_range heads = shard_range(c, DIM_STATE_HEADS, rank, size);
        shape.heads = heads.n;
        shape.first_head = config_splits_keys(c) ? 0 : heads.first;
        shape.key_heads = shard_range(c, DIM_STATE_KEYS, rank, size).n / shape.key_dim;
    }
    shape.conv = shard_range(c, DIM_STATE_VALUES, rank, size).n + 2 * shape.key_heads * shape.key_dim;
    return shape;
}

/* The KV entries of a rank with these layers; heads are split over `size` ranks, of which it is `rank`. */
static struct kv_shape kv_shape_of(const struct config *c, size_t first, size_t n, size_t rank,
                                   size_t size, size_t max_rows, const struct cache_types *types)
{
    struct kv_shape shape = {.max_rows = max_rows};
    bool ok = true; /* config_plan() has made sure that all layers fit */
    for (size_t l = 0; l < c->layers && ok; l++) {
        struct config own;
        struct kv_sizes sizes = config_kv_sizes(c, l, types);
        const struct config *of_layer = config_of_layer(c, l, &own);
        const bool unused = l + 1 == c->layers && !shape.layers && c->heads;
        if (!config_stores_kv(c, first, n, l) && !unused)
            continue;
        sizes.kv_heads = shard_range(of_layer, DIM_KV, rank, size).n / sizes.head_dim;
        ok = kv_shape_add(&shape, sizes);
    }
    if (ok)
        (void)!config_add_indexers(&shape, c, types);
    return shape;
}

static size_t shape_bytes(const struct config *c, struct layer_range layers)
{
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = kv_shape_of(c, layers.first, layers.n, 0, 1, 1, &f32);
    return kv_shape_row_bytes(&shape);
}

struct layer_range shard_larger_layers(const struct config *c, struct layer_range a,
                                       struct layer_range b)
{
    return shape_bytes(c, b) > shape_bytes(c, a) ? b : a;
}

struct shard_shapes shard_shapes(const struct model *model, size_t max_rows,
                                 const struct cache_types *types)
{
    const struct config *c = &model->config;
    struct shard_shapes shapes = shard_shapes_all(model, max_rows, types);
    const struct ranks *ranks = tensor_ranks(model);
    if (ranks) {
        const size_t rank = (size_t)ranks->rank, size = (size_t)ranks->size;
        shapes.kv = kv_shape_of(c, 0, c->layers, rank, size, max_rows, types);
        shapes.state = state_of(c, rank, size);
    }
    if (model->pipeline_parallel) {
        shapes.kv = kv_shape_of(c, model->first_layer, model->n_layers, 0, 1, max_rows, types);
        shapes.state.layers = config_state_layers(c, model->first_layer, model->n_layers);
    }
    return shapes;
}

struct shard_shapes shard_shapes_max(const struct model *model, size_t max_rows,
                                     const struct cache_types *types)
{
    const struct config *c = &model->config;
    struct shard_shapes most = shard_shapes(model, max_rows, types);
    const struct ranks *ranks = tensor_ranks(model);
    for (int r = 0; ranks && r < ranks->size; r++) {
        const struct state_shape state = state_of(c, (size_t)r, (size_t)ranks->size);
        const struct kv_shape kv =
            kv_shape_of(c, 0, c->layers, (size_t)r, (size_t)ranks->size, max_rows, types);
        if (kv_shape_row_bytes(&kv) > kv_shape_row_bytes(&most.kv))
            most.kv = kv;
        if (state_bytes(&state) > state_bytes(&most.state))
            most.state = state;
    }
    if (model->pipeline_parallel) {
        const struct layer_range layers = model->largest_rank;
        most.kv = kv_shape_of(c, layers.first, layers.n, 0, 1, max_rows, types);
        most.state.layers = model->largest_state;
    }
    return most;
}

size_t shard_slices(size_t rows)
{
    return size_max(1, size_min(SHARD_MAX_SLICES, rows / SHARD_MIN_ROWS));
}

size_t shard_slices_of(const struct config *config, size_t rows)
{
    return config->moe->experts ? 1 : shard_slices(rows);
}

/* First row of a slice, a multiple of the GEMM tile. */
static size_t slice_begin(size_t rows, size_t slices, size_t slice)
{
    enum { TILE = 16 };
    return slice == slices ? rows : rows * slice / slices / TILE * TILE;
}

struct row_range shard_rows(size_t rows, size_t slices, size_t slice)
{
    const size_t first = slice_begin(rows, slices, slice);
    return (struct row_range){first, slice_begin(rows, slices, slice + 1) - first};
}

/* ---- all-gather ---- */

void shard_set_layer(struct shard *shard, size_t layer)
{
    if (shard->ranks)
        shard->config = &shard->sizes[layer];
}

int shard_open(struct shard *shard, const struct model *model, size_t max_rows,
               const struct backend_memory *memory, const struct device_addr *buffers, struct err *err)
{
    const struct config *c = &model->config;
    *shard = (struct shard){.config = c,
                            .ranks = tensor_ranks(model),
                            .expert_parallel = model->expert_parallel,
                            .memory = memory,
                            .buffers = buffers};
    if (!shard->ranks)
        return 0;
    shard->sizes = mem_alloc(c->layers, sizeof *shard->sizes);
    for (size_t l = 0; shard->sizes && l < c->layers; l++) {
        struct config own;
        shard->sizes[l] = *config_of_layer(c, l, &own);
    }
    const size_t widths[] = {c->hidden,
                             config_max_ffn(c),
                             config_max_attn_width(c),
                             c->embed,
                             c->moe->used *
                                 size_max(c->moe->ffn, model->expert_parallel ? c->hidden : 1),
                             c->moe->shared_ffn,
                             config_state_values(c)};
    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        shard->buffer_width = size_max(shard->buffer_width, widths[i]);
    const size_t buffer_floats =
        size_max(max_rows * shard->buffer_width, size_min(SHARD_LOGITS_FLOATS, max_rows * c->vocab));
    shard->buffer = mem_alloc(buffer_floats, sizeof *shard->buffer);
    shard->bytes = mem_alloc((size_t)shard->ranks->size, sizeof *shard->bytes);
    if (shard->buffer && shard->bytes && shard->sizes)
        return 0;
    shard_close(shard);
    return err_no_memory(err, "the all-gather of %d ranks", model->ranks->size);
}

/* After a failed gather other ranks may still write to the buffer, so it is leaked: the process
 * is about to exit. */
void shard_close(struct shard *shard)
{
    if (!shard->n_pending)
        free(shard->buffer);
    else
        threads_idle_hook(NULL, NULL);
    free(shard->bytes);
    free(shard->sizes);
    *shard = (struct shard){0};
}

struct shard_range shard_local_range(const struct shard *shard, enum dim dim)
{
    return range_of(shard->config, dim, shard->ranks);
}

/* Row `row` of an operand. */
static struct device_addr row_of(const struct shard *shard, struct op_arg x, size_t row)
{
    return addr_add(shard->buffers[x.buffer], (row * x.stride + x.column) * sizeof(float));
}

/* Reads this rank's outputs to the gather buffer, which has the outputs of all rows for rank 0,
 * then for rank 1, and so on. */
static struct pending_gather prepare_gather(struct shard *shard, const struct config *sizes,
                                            enum dim dim, struct op_arg own, struct op_arg all,
                                            struct row_range rows)
{
    const size_t size = (size_t)shard->ranks->size;
    const struct shard_range mine = range_of(sizes, dim, shard->ranks);
    struct pending_gather pending = {sizes, dim, rows, all, shard->buffer};
    if (dim != DIM_VOCAB)
        pending.gathered += rows.first * shard->buffer_width;
    for (size_t r = 0; r < size; r++)
        shard->bytes[r] = shard_range(sizes, dim, r, size).n * rows.n * sizeof *pending.gathered;
    for (size_t i = 0; i < rows.n; i++)
        shard->memory->read(pending.gathered + mine.first * rows.n + i * mine.n,
                            row_of(shard, own, rows.first + i), mine.n * sizeof *pending.gathered);
    return pending;
}

/* Writes gathered outputs from the buffer to their rows. */
static void unpack_gathered(const struct shard *shard, const struct pending_gather *pending)
{
    const size_t n = pending->rows.n, size = (size_t)shard->ranks->size;
    for (size_t r = 0; r < size; r++) {
        const struct shard_range slice = shard_range(pending->config, pending->dim, r, size);
        struct op_arg to = pending->all;
        to.column += slice.first;
        for (size_t i = 0; i < n; i++)
            shard->memory->write(row_of(shard, to, pending->rows.first + i),
                                 pending->gathered + slice.first * n + i * slice.n,
                                 slice.n * sizeof *pending->gathered);
    }
}

/* ---- blocking ---- */

/* Gathers logits to rank 0 only, as replicas do not use them. */
static int gather_to_root(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    size_t at = 0;
    for (int r = 0; r < ranks->size; at += bytes[r++]) {
        char *slice = (char *)all + at;
        if (r == 0 || !bytes[r])
            continue;
        if (r == ranks->rank)
            return ranks->ops->send(ranks, slice, bytes[r], 0, RANKS_TAG_PIECE, err);
        if (ranks->rank == 0 && ranks_take(ranks, r, RANKS_TAG_PIECE, slice, bytes[r], err) < 0)
            return -1;
    }
    return 0;
}

static int gather_now(struct shard *shard, const struct pending_gather *pending, struct err *err)
{
    const double start = clock_ms();
    if ((pending->dim == DIM_VOCAB ? gather_to_root : shard->ranks->ops->gather)(
            shard->ranks, pending->gathered, shard->bytes, err) < 0)
        return -1;
    shard->wait_ms += clock_ms() - start;
    unpack_gathered(shard, pending);
    return 0;
}

int shard_gather_rows(struct shard *shard, struct op_arg all, const size_t *first, struct err *err)
{
    const double start = clock_ms();
    const int rank = shard->ranks->rank;
    float *rows = shard->buffer;
    for (int r = 0; r < shard->ranks->size; r++)
        shard->bytes[r] = (first[r + 1] - first[r]) * all.stride * sizeof *rows;
    shard->memory->read(rows + first[rank] * all.stride, row_of(shard, all, first[rank]),
                        shard->bytes[rank]);
    if (shard->ranks->ops->gather(shard->ranks, rows, shard->bytes, err) < 0)
        return -1;
    shard->memory->write(row_of(shard, all, 0), rows,
                         first[shard->ranks->size] * all.stride * sizeof *rows);
    shard->wait_ms += clock_ms() - start;
    return 0;
}

/* Gathers logits, SHARD_LOGITS_FLOATS at a time. */
static int gather_logits(struct shard *shard, const struct config *sizes, struct op_arg own,
                         struct op_arg all, struct row_range rows, struct err *err)
{
    const size_t most = size_max(1, SHARD_LOGITS_FLOATS / sizes->vocab);
    for (struct row_range some = rows; some.first < rows.first + rows.n; some.first += some.n) {
        some.n = size_min(most, rows.first + rows.n - some.first);
        const struct pending_gather pending = prepare_gather(shard, sizes, DIM_VOCAB, own, all, some);
        if (gather_now(shard, &pending, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- non-blocking, overlapping with computation ---- */

/* Called by idle threads to drive pending gathers: MPI makes progress only inside its calls. */
static void progress_hook(void *arg)
{
    enum { EVERY_US = 100 };
    struct shard *shard = arg;
    const double now = clock_ms();
    if (now - shard->progress_ms < EVERY_US * 1e-3)
        return;
    shard->progress_ms = now;
    shard->ranks->ops->progress(shard->ranks);
}

static int gather_async(struct shard *shard, const struct pending_gather *pending, struct err *err)
{
    shard->pending[shard->n_pending++] = *pending;
    threads_idle_hook(progress_hook, shard);
    return shard->ranks->ops->gather_start(shard->ranks, pending->gathered, shard->bytes, err);
}

static int finish_oldest(struct shard *shard, struct err *err)
{
    const struct pending_gather oldest = shard->pending[0];
    const double start = clock_ms();
    if (shard->ranks->ops->gather_wait(shard->ranks, err) < 0)
        return -1;
    shard->wait_ms += clock_ms() - start;
    memmove(shard->pending, shard->pending + 1, --shard->n_pending * sizeof oldest);
    if (!shard->n_pending)
        threads_idle_hook(NULL, NULL);
    unpack_gathered(shard, &oldest);
    return 0;
}

int shard_gather_start(struct shard *shard, const struct config *sizes, enum dim dim, struct op_arg own,
                       struct op_arg all, struct row_range rows, struct err *err)
{
    if (!shard->ranks)
        return 0;
    if (dim == DIM_VOCAB)
        return gather_logits(shard, sizes, own, all, rows, err);
    if (shard->n_pending == SHARD_MAX_SLICES && finish_oldest(shard, err) < 0)
        return -1;
    const struct pending_gather pending = prepare_gather(shard, sizes, dim, own, all, rows);
    /* With few rows there is nothing to overlap, and a blocking gather is faster. */
    return (rows.n < SHARD_MIN_ROWS ? gather_now : gather_async)(shard, &pending, err);
}

static bool overlap(struct row_range a, struct row_range b)
{
    return a.first < b.first + b.n && b.first < a.first + a.n;
}

static bool is_pending(const struct shard *shard, struct row_range rows)
{
    for (const struct pending_gather *at = shard->pending; at < shard->pending + shard->n_pending; at++)
        if (overlap(at->rows, rows))
            return true;
    return false;
}

int shard_gather_finish(struct shard *shard, struct row_range rows, struct err *err)
{
    while (is_pending(shard, rows))
        if (finish_oldest(shard, err) < 0)
            return -1;
    return 0;
}
