/* Opening and closing a forward pass: buffers, position tables, GEMM and attention state. */
#include <stdlib.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "model/lora/forward_lora.h"
#include "model/parallel/forward_relay.h"
#include "model/recurrent/forward_state.h"
#include "model/position.h"

/* `first_head`: this rank's first query head */
static struct attn_shape attn_shape_of(const struct forward *f, const struct config *c,
                                       size_t first_head, enum precision precision)
{
    return (struct attn_shape){.dequantize = precision == PRECISION_F32,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .v_dim = c->latent->kv_rank,
                               .scale = (float)attn_scale(c),
                               .softcap = (float)c->attn_softcap,
                               .slopes = c->position == POSITION_ALIBI ? f->slopes + first_head : NULL};
}

enum epilogue_act forward_act(const struct config *config)
{
    static const enum epilogue_act act[] = {
        [ACT_RELU] = EPILOGUE_RELU,
        [ACT_SILU] = EPILOGUE_SILU,
        [ACT_GELU] = EPILOGUE_GELU,
        [ACT_GELU_TANH] = EPILOGUE_GELU_TANH,
        [ACT_RELU2] = EPILOGUE_RELU2,
        [ACT_QUICK_GELU] = EPILOGUE_QUICK_GELU,
        [ACT_CLAMPED_SWIGLU] = EPILOGUE_CLAMPED_SWIGLU,
    };
    return act[config->activation];
}

/* Counts the layers before each one that have KV entries or state, from this rank's first layer on. */
static int index_layers(struct forward *f, struct err *err)
{
    const struct config *c = &f->model->config;
    const size_t first = f->pipeline.first_layer, own = f->pipeline.n_layers;
    f->layer_index = mem_alloc(c->layers, sizeof *f->layer_index);
    if (!f->layer_index)
        return err_no_memory(err, "%zu layers", c->layers);
    for (size_t l = 0; l < c->layers; l++)
        f->layer_index[l] =
            (struct layer_index){config_kv_index(c, first, own, l),
                                 l < first ? 0 : config_state_layers(c, first, l - first)};
    return 0;
}

/* Width of the widest input of a product. */
static size_t widest_input(const struct config *c)
{
    const size_t inputs[] = {c->hidden,
                             config_max_ffn(c),
                             config_max_attn_width(c),
                             c->layer_input,
                             c->latent->q_rank,
                             c->latent->kv_rank,
                             c->latent->nope_dim,
                             c->embed,
                             config_dim(c, DIM_ATTN_IN),
                             c->moe->shared_ffn,
                             config_state_values(c),
                             config_is_draft_head(c) ? config_dim(c, DIM_FUSION) : 1};
    size_t widest = 1;
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
        widest = size_max(widest, inputs[i]);
    return widest;
}

static void size_rope_tables(struct forward *f, const struct config *c)
{
    f->rope_tables = config_rope_tables(c);
    f->rope_pairs[LAYER_ROPE] = c->rope[LAYER_ROPE].dim / 2;
    f->rope_pairs[LAYER_ROPE_LOCAL] = c->rope[LAYER_ROPE_LOCAL].dim / 2;
    f->rope_half = size_max(f->rope_pairs[LAYER_ROPE], f->rope_pairs[LAYER_ROPE_LOCAL]);
}

/* This rank's first query head, in layers whose KV heads have the main sizes or others. */
static size_t first_head_of(struct forward *f, bool other)
{
    for (size_t l = 0; l < f->model->config.layers; l++)
        if (f->model->config.plan[l].kv_other == other) {
            shard_set_layer(&f->shard, l);
            return shard_local_range(&f->shard, DIM_Q).first / config_query_dim(f->shard.config);
        }
    return 0;
}

int forward_open(struct forward *f, const struct model *model, const struct kernels *kernels,
                 enum precision precision, const struct attn_backend *backend, struct kv *kv,
                 size_t max_rows, struct err *err)
{
    const struct config *c = &model->config;
    *f = (struct forward){.model = model, .kernels = kernels, .kv = kv, .max_rows = max_rows};
    f->local = shard_config(model, false);
    f->other = shard_config(model, true);
    f->pipeline = pipeline_open(model);
    size_rope_tables(f, c);
    const size_t q_width = size_max(config_q_width(&f->local), config_q_width(&f->other)),
                 kv_width = size_max(config_kv_width(&f->local), config_kv_width(&f->other));
    if (shard_open(&f->shard, model, max_rows, err) < 0)
        return -1;
    const bool head = config_is_draft_head(c), latent = c->latent->kv_rank > 0;
    const bool needs_branch = config_changes_output(c) || c->block == BLOCK_PARALLEL;
    struct {
        float **buffer;
        size_t width;
    } const table[] = {
        {&f->x, c->hidden},
        {&f->h, c->hidden},
        {&f->q, q_width + PACK_OUT},
        {&f->k, kv_width + PACK_OUT},
        {&f->v, latent ? 1 : kv_width + PACK_OUT},
        {&f->q_a, size_max(1, c->latent->q_rank)},
        {&f->q_heads, latent ? config_dim(&f->local, DIM_Q) + PACK_OUT : 1},
        {&f->latents, latent ? config_context_width(&f->local) : 1},
        {&f->attn_out, config_max_attn_width(c)},
        {&f->up, config_max_ffn(c)},
        {&f->beside, c->moe->beside ? c->hidden : 1},
        {&f->layer_inputs, c->layers * c->layer_input + PACK_OUT},
        {&f->layer_gate, size_max(1, c->layer_input)},
        {&f->embedded, c->embed != c->hidden ? c->embed : 1},
        {&f->cosine, f->rope_tables * f->rope_half},
        {&f->sine, f->rope_tables * f->rope_half},
        {&f->temperature, 1},
        {&f->branch, needs_branch ? c->hidden : 1},
        {&f->fused, head ? c->embed + c->hidden : 1},
        {&f->feature, head ? size_max(config_feature_width(c), c->hidden) : 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        *table[i].buffer = mem_alloc(max_rows, table[i].width * sizeof(float));
        if (!*table[i].buffer) {
            err_no_memory(err, "a step of %zu tokens, which needs a buffer of %zu x %zu", max_rows,
                          max_rows, table[i].width);
            goto fail;
        }
    }
    if (head) /* passes may run without hidden states, to measure their time */
        memset(f->feature, 0, max_rows * size_max(config_feature_width(c), c->hidden) * sizeof(float));
    f->attn_out_local =
        f->shard.ranks
            ? mem_alloc(max_rows, size_max(config_attn_width(&f->local), config_attn_width(&f->other)) *
                                      sizeof(float))
            : f->attn_out;
    f->context = latent ? f->latents : f->attn_out_local;
    f->frequency = mem_zalloc(kv_setup(kv)->n_seqs, f->rope_tables * f->rope_half * sizeof(float));
    f->slopes = mem_alloc(c->heads, sizeof(float));
    if (!f->frequency || !f->slopes || !f->attn_out_local) {
        err_no_memory(err, "the buffers of forward passes");
        goto fail;
    }
    for (size_t seq = 0; seq < kv_setup(kv)->n_seqs; seq++)
        forward_begin(f, seq, kv_setup(kv)->shape.max_rows);
    if (index_layers(f, err) < 0 || forward_state_open(f, err) < 0 || forward_lora_open(f, err) < 0 ||
        forward_relay_open(f, err) < 0)
        goto fail;
    alibi_slopes(c, f->slopes);
    const struct attn_shape shape = attn_shape_of(f, &f->local, first_head_of(f, false), precision),
                            other = attn_shape_of(f, &f->other, first_head_of(f, true), precision);
    const struct kv_setup *setup = kv_setup(kv);
    const struct attn_limits limits = {size_max(setup->view_rows, setup->shape.max_rows), max_rows,
                                       setup->n_seqs};
    const size_t adapters = model->loras && model->loras->n ? setup->n_seqs : 1;
    if (gemm_open_groups(&f->gemm, kernels, precision, max_rows, widest_input(c), adapters, err) == 0 &&
        experts_open(&f->experts, model, kernels, precision, f->gemm, forward_act(c), max_rows,
                     &f->shard, err) == 0 &&
        attn_open(&f->attn, backend, &shape, &limits, err) == 0 &&
        (!setup->shape.other_layers || attn_open(&f->attn_other, backend, &other, &limits, err) == 0))
        return 0;
fail:
    forward_close(f);
    return -1;
}

void forward_set_hook(struct forward *f, gemm_activation_hook *hook, void *arg)
{
    gemm_set_hook(f->gemm, hook, arg);
    if (f->experts.gemm)
        gemm_set_hook(f->experts.gemm, hook, arg);
}

void forward_begin(struct forward *f, size_t seq, size_t length)
{
    const struct config *c = &f->model->config;
    for (size_t table = 0; table < f->rope_tables; table++)
        rope_frequencies(&c->rope[table], length,
                         f->frequency + (seq * f->rope_tables + table) * f->rope_half);
}

bool forward_same_rope(const struct forward *f, size_t a, size_t b)
{
    const size_t n = f->rope_tables * f->rope_half;
    return memcmp(f->frequency + a * n, f->frequency + b * n, n * sizeof *f->frequency) == 0;
}

void forward_close(struct forward *f)
{
    forward_state_close(f);
    forward_lora_close(f);
    forward_relay_close(f);
    free(f->layer_index);
    attn_close(f->attn);
    attn_close(f->attn_other);
    experts_close(&f->experts);
    gemm_close(f->gemm);
    shard_close(&f->shard);
    if (f->attn_out_local != f->attn_out)
        free(f->attn_out_local);
    float *const buffers[] = {f->x,          f->h,           f->q,
                              f->k,          f->v,           f->attn_out,
                              f->up,         f->embedded,    f->cosine,
                              f->sine,       f->temperature, f->frequency,
                              f->slopes,     f->branch,      f->fused,
                              f->feature,    f->tap.state,   f->q_a,
                              f->q_heads,    f->latents,     f->layer_inputs,
                              f->layer_gate, f->beside};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    *f = (struct forward){0};
}
