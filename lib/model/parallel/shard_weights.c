/* Reduces a model's weights to those of one rank. */
#include "model/parallel/shard_weights.h"

#include <sys/mman.h>

#include "base/mem.h"
#include "base/vm.h"
#include "model/model_pages.h"
#include "quant/pack.h"

/* A matrix that a GEMM reads, and its place in the model. */
struct bound {
    struct model *model;
    const struct weight_kind *kind;
    size_t layer; /* for kinds in layers */
    struct linear *linear;
};

static int each_product(struct model *model, int (*use)(const struct bound *bound, struct err *err),
                        struct err *err)
{
    for (size_t i = 0; i < n_weight_kinds; i++) {
        const struct weight_kind *kind = &weight_kinds[i];
        if (kind->in == DIM_NONE || weight_kind_is_table(kind))
            continue;
        for (size_t layer = 0; layer < weight_kind_copies(kind, &model->config); layer++) {
            const struct bound bound = {model, kind, layer,
                                        weight_kind_at(kind, &model->weights, layer)};
            if (weight_kind_has(kind, &model->config, layer) && use(&bound, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* The model's configuration with the sizes of the layer; *own holds it, if they differ. */
static const struct config *config_at(const struct bound *bound, struct config *own)
{
    const struct config *c = &bound->model->config;
    return weight_kind_in_layer(bound->kind) ? config_of_layer(c, bound->layer, own) : c;
}

static size_t mat_bytes(const struct mat *w)
{
    return layout_bytes(w->layout, w->dtype, w->out, w->in);
}

/* Bytes of a matrix, or of the whole stack that it begins. */
static size_t stack_bytes(const struct weight_kind *kind, const struct config *config,
                          const struct mat *w)
{
    return size_max(weight_kind_stack(kind, config), 1) * mat_bytes(w);
}

/* ---- the file ---- */

/* Unmaps [from, to) of the mapped file, which is unmapped as a whole. */
static void unmap_range(const struct model *model, const char *from, const char *to)
{
    if (!model->synthetic && from < to)
        vm_forbid((void *)(uintptr_t)from, (size_t)(to - from));
}

/* Unmaps those outputs of a matrix that other ranks have, unless it is the embedding table. */
static void unmap_rest(const struct bound *bound, const struct mat *all, const struct mat *own)
{
    const char *from = all->data, *mine = own->data,
               *end = from + stack_bytes(bound->kind, &bound->model->config, all);
    if (all->data == bound->model->weights.embed.data)
        return;
    unmap_range(bound->model, from, mine ? mine : end);
    if (mine)
        unmap_range(bound->model, mine + mat_bytes(own), end);
}

/* Unmaps those outputs of each matrix of a stack that other ranks have. */
static void unmap_rest_of_stack(const struct bound *bound, const struct mat *all, const struct mat *own)
{
    const size_t stride = mat_bytes(all), bytes = mat_bytes(own),
                 skipped = (size_t)((const char *)own->data - (const char *)all->data);
    for (size_t i = 0; i < weight_kind_stack(bound->kind, &bound->model->config); i++) {
        const char *from = (const char *)all->data + i * stride;
        unmap_range(bound->model, from, from + skipped);
        unmap_range(bound->model, from + skipped + bytes, from + stride);
    }
}

/* Disables huge pages for an embedding table that is the LM head, too, of which a rank reads some rows. */
static void disable_table_huge_pages(const struct model *model)
{
    if (!model->synthetic)
        model_advise_table(&model->weights.embed);
}

/* Bytes from a matrix of a stack to the next, of which a rank has some outputs. */
static size_t stack_stride(const struct bound *bound)
{
    const struct mat *w = &bound->linear->weight;
    struct config own;
    return layout_bytes(w->layout, w->dtype, config_dim(config_at(bound, &own), bound->kind->out),
                        w->in);
}

/* The matrices of a stack of which this rank has some outputs. */
static struct shard_range own_stack(const struct bound *bound)
{
    const struct model *model = bound->model;
    const size_t n = size_max(weight_kind_stack(bound->kind, &model->config), 1);
    return weight_kind_of_experts(bound->kind) && model->expert_parallel
               ? shard_experts(&model->config, (size_t)model->ranks->rank, (size_t)model->ranks->size)
               : (struct shard_range){0, n};
}

static int lock(const struct bound *bound, struct err *err)
{
    const struct mat *w = &bound->linear->weight;
    const struct shard_range own = own_stack(bound);
    const size_t bytes = mat_bytes(w), stride = stack_stride(bound);
    for (size_t i = own.first; w->data && i < own.first + own.n; i++)
        if (mlock((const char *)w->data + i * stride, bytes) < 0)
            return err_errno(err, "%s: cannot lock %zu bytes in memory (ulimit -l)", bound->model->name,
                             bytes);
    return 0;
}

int shard_lock(struct model *model, struct err *err) { return each_product(model, lock, err); }

/* ---- tensor parallel ---- */

/* Reduces a matrix to this rank's outputs, rounded down to a block of the packed layout: `skip`
 * leading outputs of another rank are computed and dropped. */
static void shard_linear(struct linear *linear, struct shard_range own)
{
    struct mat *w = &linear->weight;
    linear->skip = own.first % PACK_OUT;
    w->data = (const char *)w->data + own.first / PACK_OUT * pack_block_bytes(w->dtype, w->in_padded);
    w->out = linear->skip + own.n;
    if (linear->bias)
        linear->bias += own.first - linear->skip;
}

/* Unmaps the experts of other ranks. */
static void unmap_other_experts(const struct bound *bound)
{
    const struct shard_range own = own_stack(bound);
    const struct mat *w = &bound->linear->weight;
    const size_t stride = mat_bytes(w), n = bound->model->config.moe->experts;
    const char *data = w->data;
    unmap_range(bound->model, data, data + own.first * stride);
    unmap_range(bound->model, data + (own.first + own.n) * stride, data + n * stride);
}

static int shard_matrix(const struct bound *bound, struct err *err)
{
    const struct ranks *ranks = bound->model->ranks;
    const struct mat all = bound->linear->weight;
    (void)err;
    if (weight_kind_of_experts(bound->kind) && bound->model->expert_parallel) {
        unmap_other_experts(bound);
        return 0;
    }
    struct config own;
    const struct config *c = config_at(bound, &own);
    if (shard_replicates(c, bound->kind->out))
        return 0;
    shard_linear(bound->linear,
                 shard_range(c, bound->kind->out, (size_t)ranks->rank, (size_t)ranks->size));
    if (weight_kind_of_experts(bound->kind))
        unmap_rest_of_stack(bound, &all, &bound->linear->weight);
    else
        unmap_rest(bound, &all, &bound->linear->weight);
    return 0;
}

int shard_model_tensors(struct model *model, struct ranks *ranks, bool expert_parallel, struct err *err)
{
    const struct config *c = &model->config;
    const size_t most = shard_most_ranks(c);
    bool are_kv_heads = false;
    for (size_t l = 0; l < c->layers; l++)
        are_kv_heads |= c->plan[l].kv_heads == most;
    if ((size_t)ranks->size > most)
        return err_set(err, "%s: %zu %s cannot be split over %d ranks; start at most %zu", model->name,
                       most, are_kv_heads ? "KV heads" : "heads", ranks->size, most);
    if (expert_parallel && !model->config.moe->experts)
        return err_set(err, "%s: has no experts: use --parallelism tensor", model->name);
    model->ranks = ranks;
    model->expert_parallel = expert_parallel;
    disable_table_huge_pages(model);
    return each_product(model, shard_matrix, err);
}

/* ---- pipeline parallel ---- */

/* With inputs of layers of their own every rank computes embeddings, and the inputs of its own layers. */
static bool is_own(const struct bound *bound)
{
    const struct model *model = bound->model;
    if (weight_kind_in_layer(bound->kind))
        return bound->layer - model->first_layer < model->n_layers;
    const bool embeds = bound->linear == &model->weights.project_in,
               first = embeds || bound->linear == &model->weights.stream_in;
    return (embeds && model->config.layer_input.width) ||
           model->ranks->rank == (first ? 0 : model->ranks->size - 1);
}

static int drop_other_layers(const struct bound *bound, struct err *err)
{
    const struct model *model = bound->model;
    const struct mat all = bound->linear->weight;
    const size_t width = model->config.layer_input.width;
    (void)err;
    if (bound->linear == &model->weights.layer_inputs)
        shard_linear(bound->linear,
                     (struct shard_range){model->first_layer * width, model->n_layers * width});
    else if (is_own(bound))
        return 0;
    else
        *bound->linear = (struct linear){0};
    unmap_rest(bound, &all, &bound->linear->weight);
    return 0;
}

static size_t layer_bytes(const struct model *model, size_t layer)
{
    size_t bytes = 0;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        if (weight_kind_in_layer(kind) && kind->in != DIM_NONE &&
            weight_kind_has(kind, &model->config, layer))
            bytes += stack_bytes(kind, &model->config, weight_kind_at(kind, &model->weights, layer));
    return bytes;
}

/* Divides the bytes of all layers and the LM head evenly over ranks; a layer goes to the rank whose
 * range has the layer's middle byte, but each rank gets at least one layer. */
void shard_assign_layers(const struct model *model, size_t size, size_t *count)
{
    const size_t layers = model->config.layers;
    size_t all = mat_bytes(&model->weights.head.weight), at = 0, rank = 0;
    for (size_t l = 0; l < layers; l++)
        all += layer_bytes(model, l);
    for (size_t l = 0; l < layers; l++) {
        const size_t bytes = layer_bytes(model, l), must = size - size_min(size, layers - l);
        const bool next = (double)(at + bytes / 2) * (double)size >= (double)all * (double)(rank + 1);
        if (rank + 1 < size && count[rank] && (next || rank < must))
            rank++;
        count[rank]++;
        at += bytes;
    }
}

int shard_model_layers(struct model *model, struct ranks *ranks, const size_t *count, struct err *err)
{
    const struct config *c = &model->config;
    const size_t size = (size_t)ranks->size, layers = c->layers;
    size_t sum = 0;
    bool empty = false;
    if (size > layers)
        return err_set(err, "%s: %zu layers cannot be split over %zu ranks", model->name, layers, size);
    size_t *assigned = mem_zalloc(size, sizeof *assigned);
    if (!assigned)
        return err_no_memory(err, "%zu ranks", size);
    if (!count)
        shard_assign_layers(model, size, assigned);
    for (size_t r = 0; r < size; r++) {
        const size_t n = count ? count[r] : assigned[r];
        const size_t at = size_min(sum, layers), own = size_min(n, layers - at);
        if (r == (size_t)ranks->rank) {
            model->first_layer = sum;
            model->n_layers = n;
        }
        model->largest_rank =
            shard_larger_layers(c, model->largest_rank, (struct layer_range){at, own});
        model->largest_state = size_max(model->largest_state, config_state_layers(c, at, own));
        sum += n;
        empty |= n == 0;
    }
    free(assigned);
    if (sum != layers || empty)
        return err_set(err, "%s: has %zu layers, at least one per rank; %zu are assigned%s",
                       model->name, layers, sum, empty ? ", and a rank has none" : "");
    model->ranks = ranks;
    model->pipeline_parallel = true;
    disable_table_huge_pages(model);
    return each_product(model, drop_other_layers, err);
}
