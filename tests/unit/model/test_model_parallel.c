/* Tensor and pipeline parallelism against one process: bitwise the same logits. Ranks are threads,
 * and messages are copies.
 *
 * Rank 0 uses sessions as the generation loop does: chunked prefill, batches, a fork, a draft
 * tree with a partial acceptance, a truncation, reordered beams. The logits are hashed. Long
 * prompts overlap all-gather with computation. */
#include "quant/cache_types.h"
#include "base/hash.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "tests/unit/thread_ranks.h"
#include "decode/replica.h"
#include "model/config/config_keys.h"
#include "model/forward.h"
#include "model/parallel/shard_weights.h"

enum { CONTEXT = 64, BATCH = 4, CHUNK = 20, LONG = 300 };

/* ---- models ---- */

#define SMALL(width, head, n_layers, n_heads)                                                          \
    .config.layers = n_layers, .config.hidden = 64, .config.embed = width, .config.heads = 8,          \
    .config.kv_heads = n_heads, .config.head_dim = head, .config.ffn = 104, .config.vocab = 93,        \
    .config.context = CONTEXT, .config.norm_eps = 1e-5, .keys.rope.theta = 1e4

#define LLAMA(head) LLAMA_OF(head, 3, 4)

#define LLAMA_OF(head, n_layers, n_heads)                                                              \
    SMALL(64, head, n_layers, n_heads), .config.norm = NORM_RMS, .config.position = POSITION_ROPE,     \
                                        .keys.mlp.activation = ACT_SILU, .keys.mlp.kind = MLP_GATED,   \
                                        .config.final_norm = true

#define OPT(width)                                                                                     \
    SMALL(width, 16, 3, 4), .config.norm = NORM_LAYER, .config.norm_affine = true,                     \
                            .config.position = POSITION_LEARNED, .keys.mlp.activation = ACT_RELU,      \
                            .keys.mlp.kind = MLP_PLAIN, .config.bias_qkv = true,                       \
                            .config.bias_out = true, .keys.mlp.bias = true

static const struct small {
    const char *name;
    struct config_text text;
} smalls[] = {
    {"llama", {LLAMA(16)}},
    {"llama, heads that end inside blocks",
     {LLAMA(24), .config.tied_head = true, .config.bias_qkv = true}},
    {"qwen3", {LLAMA(16), .config.qk_norm = QK_NORM_HEAD}},
    {"olmo2", {LLAMA(24), .config.qk_norm = QK_NORM_WHOLE, .config.norm_place = NORM_ON_OUTPUT}},
    {"gemma2",
     {LLAMA(16), .config.norm_place = NORM_AROUND, .keys.window = 9, .keys.window_every = 2,
      .config.attn_softcap = 5, .config.logit_softcap = 3, .config.embed_scale = 8,
      .config.tied_head = true}},
    {"gemma3",
     {LLAMA(16), .config.norm_place = NORM_AROUND, .keys.window = 9, .keys.window_every = 3,
      .keys.rope_sliding = LAYER_ROPE_LOCAL, .keys.rope_local_theta = 100,
      .config.qk_norm = QK_NORM_HEAD}},
    {"cohere",
     {SMALL(64, 24, 3, 4), .config.norm = NORM_LAYER, .config.norm_affine = true,
      .config.no_norm_bias = true, .config.position = POSITION_ROPE, .keys.mlp.activation = ACT_SILU,
      .keys.mlp.kind = MLP_GATED, .config.final_norm = true, .config.block = BLOCK_PARALLEL_SHARED,
      .config.qk_norm = QK_NORM_EACH, .config.logit_scale = 0.3, .keys.window = 9,
      .keys.window_every = 3, .keys.rope_full = LAYER_NOPE}},
    {"granite, limits and temperature",
     {LLAMA(16), .config.residual_scale = 0.3, .config.clip_qkv = 0.1, .keys.temperature.scale = 0.5,
      .keys.temperature.length = 7, .config.qk_norm = QK_NORM_EACH, .config.qk_norm_after_rope = true}},
    {"opt",
     {OPT(64), .config.position_offset = 2, .config.final_norm = true, .config.tied_head = true}},
    {"opt, narrow", {OPT(40), .config.norm_place = NORM_AFTER}},
    {"falcon",
     {SMALL(64, 16, 3, 4), .config.norm = NORM_LAYER, .config.norm_affine = true,
      .config.position = POSITION_ROPE, .keys.rope.dim = 8, .config.block = BLOCK_PARALLEL,
      .keys.mlp.activation = ACT_GELU, .keys.mlp.kind = MLP_PLAIN, .config.bias_head = true,
      .config.final_norm = true}},
    {"bloom",
     {SMALL(64, 16, 3, 4), .config.norm = NORM_LAYER, .config.norm_affine = true,
      .config.embed_norm = true, .config.position = POSITION_ALIBI,
      .keys.mlp.activation = ACT_GELU_TANH, .keys.mlp.kind = MLP_PLAIN, .config.bias_qkv = true,
      .config.bias_out = true, .keys.mlp.bias = true, .config.final_norm = true,
      .config.tied_head = true}},
    {"gpt-oss",
     {LLAMA(16), .keys.window = 9, .keys.window_every = 2, .config.attn_sinks = true,
      .config.bias_qkv = true, .config.bias_out = true, .keys.moe.experts = 7, .keys.moe.used = 3,
      .keys.moe.ffn = 40, .keys.moe.bias = true, .keys.moe.bias_router = true, .keys.mlp.limit = 7,
      .keys.mlp.alpha = 1.7, .keys.expert_every = 1, .keys.moe.scale = 1}},
    {"deepseek",
     {LLAMA_OF(40, 3, 1), .keys.latent.kv_rank = 32, .keys.rope.dim = 8, .keys.latent.nope_dim = 12,
      .keys.latent.v_dim = 16, .keys.latent.q_rank = 24, .keys.moe.experts = 8, .keys.moe.used = 2,
      .keys.moe.ffn = 40, .keys.moe.shared_ffn = 40, .keys.expert_first = 1, .keys.expert_every = 1,
      .keys.moe.scale = 1}},
    {"llama4",
     {LLAMA_OF(16, 4, 4),
      .keys.window = 9,
      .keys.layer_types = {4, {LAYER_CHUNKED, LAYER_CHUNKED, LAYER_CHUNKED, LAYER_FULL}},
      .keys.layer_rope = {4, {LAYER_ROPE, LAYER_ROPE, LAYER_ROPE, LAYER_NOPE}},
      .config.qk_norm = QK_NORM_HEAD,
      .config.qk_norm_after_rope = true,
      .keys.qk_norm_rotated = true,
      .keys.temperature.scale = 0.2,
      .keys.temperature.length = 7,
      .keys.temperature.offset = 1,
      .keys.temperature_unrotated = true,
      .keys.moe.experts = 5,
      .keys.moe.used = 2,
      .keys.moe.ffn = 40,
      .keys.moe.shared_ffn = 40,
      .keys.expert_every = 1,
      .keys.expert_layers = {2, {1, 3}},
      .keys.moe.router = ROUTER_TOPK_SIGMOID,
      .keys.moe.weigh_input = true,
      .keys.moe.scale = 1}},
    {"deepseek, Q without latent",
     {LLAMA_OF(24, 3, 1), .keys.latent.kv_rank = 16, .keys.rope.dim = 8, .keys.latent.nope_dim = 16,
      .keys.latent.v_dim = 32}},
};

/* Layers of different sizes: in the middle of the model begin those that attend to keys and values of others, which
 * may be on a rank before; a rank may have layers of one size only. */
#define SIZES(n_heads, ...)                                                                            \
    LLAMA_OF(16, 7, n_heads),                                                                          \
        .config.norm_place = NORM_AROUND, .keys.window = 9, .keys.rope_sliding = LAYER_ROPE_LOCAL,     \
        .keys.rope_local_theta = 100, .keys.rope.share = 0.5, .config.qk_norm = QK_NORM_HEAD,          \
        .config.qk_norm_affine = true, .config.v_norm = true, .config.layer_scale = true,              \
        .config.attn_scale = 1,                                                                        \
        .keys.layer_types = {7,                                                                        \
                             {LAYER_SLIDING, LAYER_SLIDING, LAYER_FULL, LAYER_SLIDING, LAYER_SLIDING,  \
                              LAYER_FULL, LAYER_SLIDING}},                                             \
        __VA_ARGS__

static const struct small sizes[] = {
    {"gemma4 with shared keys and values",
     {SIZES(2, .keys.full_head_dim = 24, .keys.kv_shared = 3, .keys.kv_shared_ffn = 136,
            .config.layer_input.width = 10)}},
    {"gemma4 with few shared keys and values",
     {SIZES(4, .keys.full_head_dim = 20, .keys.full_kv_heads = 2, .keys.kv_shared = 4,
            .config.layer_input.width = 16, .keys.last_full = true, .config.tied_head = true)}},
    {"gemma4, dense",
     {SIZES(8, .keys.full_head_dim = 40, .keys.full_kv_heads = 4, .keys.v_is_k = true)}},
    {"gemma4, experts",
     {SIZES(8, .keys.full_kv_heads = 4, .keys.v_is_k = true, .keys.last_full = true,
            .keys.moe.experts = 7, .keys.moe.used = 3, .keys.moe.ffn = 40, .keys.expert_every = 1,
            .keys.moe.beside = true, .keys.moe.norm_weights = true, .keys.moe.scale = 1)}},
    {"four KV shapes",
     {SIZES(8, .keys.layer_kv_heads = {7, {8, 4, 2, 8, 4, 4, 8}},
            .keys.layer_head_dim = {7, {16, 16, 24, 16, 16, 24, 16}})}},
    {"query heads of layers, a gate per head, limits",
     {SIZES(8, .config.attn_gate = ATTN_GATE_HEAD, .keys.layer_heads = {7, {8, 16, 8, 24, 8, 16, 8}},
            .keys.mlp_limits = {7, {0.1, 0, 0.2, 0.1, 0, 0, 0.3}})}},
    {"inputs of layers, projected embeddings",
     {SMALL(40, 16, 4, 4), .config.norm = NORM_RMS, .config.position = POSITION_ROPE,
      .keys.mlp.activation = ACT_SILU, .keys.mlp.kind = MLP_GATED, .config.final_norm = true,
      .config.layer_input.width = 12}},
};

/* Layers with state, among which a rank may have no attention layer, or no other. */
#define STATE(kind, ...)                                                                               \
    LLAMA_OF(16, 5, 4),                                                                                \
        .config.attn_gate = true, .keys.recurrent.bias_conv = true, .keys.recurrent.bias = true,       \
        .keys.recurrent.norm = true, .keys.recurrent.conv_kernel = 4,                                  \
        .keys.layer_types = {5, {kind, LAYER_FULL, kind, kind, LAYER_FULL}}, __VA_ARGS__

static const struct small states[] = {
    {"lfm2", {STATE(LAYER_CONV)}},
    {"qwen3-next",
     {STATE(LAYER_DELTA, .keys.recurrent.heads = 8, .keys.recurrent.key_heads = 4,
            .keys.recurrent.key_dim = 12, .keys.recurrent.value_dim = 20)}},
    {"kimi-linear",
     {STATE(LAYER_DELTA, .keys.recurrent.heads = 4, .keys.recurrent.key_heads = 4,
            .keys.recurrent.key_dim = 12, .keys.recurrent.value_dim = 12, .keys.recurrent.by_row = true,
            .keys.recurrent.rank = 7, .keys.recurrent.gate = STATE_GATE_SIGMOID)}},
    {"qwen3.5, tiled",
     {STATE(LAYER_DELTA, .keys.recurrent.heads = 6, .keys.recurrent.key_heads = 2,
            .keys.recurrent.key_dim = 16, .keys.recurrent.value_dim = 40,
            .keys.recurrent.tiled = true)}},
    {"granite-h",
     {STATE(LAYER_MAMBA, .keys.recurrent.heads = 5, .keys.recurrent.key_heads = 1,
            .keys.recurrent.key_dim = 16, .keys.recurrent.value_dim = 12)}},
    {"mamba-2, norm before the gate",
     {STATE(LAYER_MAMBA, .keys.recurrent.heads = 4, .keys.recurrent.key_heads = 1,
            .keys.recurrent.key_dim = 9, .keys.recurrent.value_dim = 24,
            .keys.recurrent.norm_first = true, .keys.recurrent.out_scale = 0.6)}},
    {"falcon-h1",
     {STATE(LAYER_MAMBA_FULL, .keys.recurrent.heads = 8, .keys.recurrent.key_heads = 4,
            .keys.recurrent.key_dim = 8, .keys.recurrent.value_dim = 16, .keys.recurrent.in_scale = 0.7,
            .keys.recurrent.out_scale = 0.6, .config.attn_out_scale = 0.8,
            .keys.recurrent.scales = {5, {0.5, 0.6, 0.7, 0.8, 0.9}})}},
};

/* One KV head and one layer for each of 8 ranks. */
static const struct small wide = {"llama, wide",
                                  {SMALL(64, 16, 8, 8), .config.norm = NORM_RMS,
                                   .config.position = POSITION_ROPE, .keys.mlp.activation = ACT_SILU,
                                   .keys.mlp.kind = MLP_GATED, .config.tied_head = true}};

/* Distinct gains and biases, so that mix-ups are detected. */
static void fill_vectors(struct model *model)
{
    const struct config *c = &model->config;
    uint32_t state = 1;
    for (size_t i = 0; i < n_weight_kinds; i++) {
        const struct weight_kind *kind = &weight_kinds[i];
        const bool in_layer = weight_kind_in_layer(kind);
        for (size_t l = 0; kind->in == DIM_NONE && l < (in_layer ? c->layers : 1); l++) {
            if (!weight_kind_has(kind, c, l))
                continue;
            char *base = in_layer ? (char *)&model->weights.layer[l] : (char *)&model->weights;
            float *x = *(float **)(void *)(base + kind->offset);
            struct config own;
            const size_t n = config_dim(in_layer ? config_of_layer(c, l, &own) : c, kind->out);
            for (size_t k = 0; k < n; k++) {
                state = state * 1664525 + 1013904223;
                x[k] += (float)(state >> 8) * 0x1p-26f;
            }
        }
    }
}

static struct model *make_model(const struct config *config, enum dtype type, struct err *err)
{
    struct model *model;
    if (model_synthesize(&model, config, "a test", type, 7, err) < 0)
        return NULL;
    fill_vectors(model);
    return model;
}

/* ---- operations of a loop ---- */

struct work {
    struct session *session;
    struct hasher hasher;
    float logits[CHUNK * 2 * 93];
    uint32_t next;
    struct err err;
};

static void must(struct work *w, int rc)
{
    if (rc < 0) {
        printf("not ok - %s\n", w->err.text);
        exit(1);
    }
}

static uint32_t draw(struct work *w)
{
    w->next = w->next * 1103515245 + 12345;
    return (w->next >> 16) % 93;
}

static size_t add(struct work *w, size_t seq, size_t n)
{
    uint32_t id[LONG];
    for (size_t i = 0; i < n; i++)
        id[i] = draw(w);
    return batch_add(w->session, seq, id, n);
}

/* Adds the logits of the step's first n rows to the hash. */
static void hash_logits(struct work *w, size_t n)
{
    size_t row[CHUNK * 2];
    for (size_t i = 0; i < n; i++)
        row[i] = n - 1 - i;
    must(w, session_logits(w->session, row, n, w->logits, &w->err));
    hasher_add(&w->hasher, w->logits, n * 93 * sizeof *w->logits);
}

/* Adds the logits of the step's last row to the hash. */
static void hash_last(struct work *w, size_t rows)
{
    must(w, session_logits(w->session, &(size_t){rows - 1}, 1, w->logits, &w->err));
    hasher_add(&w->hasher, w->logits, 93 * sizeof *w->logits);
}

static void run_rows(struct work *w, size_t rows)
{
    must(w, session_run(w->session, 1, &w->err));
    hash_logits(w, rows);
}

/* Appends one token to each of the first n sequences. */
static void decode(struct work *w, size_t n)
{
    for (size_t seq = 0; seq < n; seq++)
        add(w, seq, 1);
    run_rows(w, n);
}

/* Draft tree: 1 and 2 are children of 0, 3 of 1, 4 of 2; the path 0 2 4 is accepted. */
static void tree(struct work *w)
{
    static const size_t depth[] = {0, 1, 1, 2, 2}, ancestors_at[] = {0, 1, 3, 5, 8, 11},
                        path[] = {0, 2, 4};
    static const uint32_t ancestors[] = {0, 0, 1, 0, 2, 0, 1, 3, 0, 2, 4};
    uint32_t id[5];
    for (size_t i = 0; i < 5; i++)
        id[i] = draw(w);
    batch_add_tree(w->session, 0, id, depth, 5, ancestors, ancestors_at);
    add(w, 1, 1);
    must(w, session_forward(w->session, 1, &w->err));
    hash_logits(w, 6);
    session_accept(w->session, 0, path, 3);
    session_accept(w->session, 1, &(size_t){0}, 1);
}

static struct work *begin(const struct model *model, const struct session_options *options)
{
    static struct work shared;
    struct work *w = &shared;
    hasher_init(&w->hasher);
    w->next = 1;
    must(w, session_open(&w->session, model, options, &w->err));
    return w;
}

/* A step of two prompts in slices, one of which spans both; then two tokens, and a step with
 * fewer slices. */
static struct hash work_long(const struct model *model, const struct session_options *options)
{
    struct work *w = begin(model, options);
    add(w, 0, 220);
    add(w, 1, 80);
    must(w, session_run(w->session, 1, &w->err));
    hash_last(w, LONG);
    decode(w, 2);
    add(w, 1, 150);
    must(w, session_run(w->session, 1, &w->err));
    hash_last(w, 150);
    session_close(w->session);
    return hasher_result(&w->hasher);
}

static struct hash work(const struct model *model, const struct session_options *options)
{
    struct work *w = begin(model, options);
    session_begin(w->session, 0, CONTEXT, CONTEXT);
    session_begin(w->session, 1, 30, 30);
    session_mark(w->session, 0, 25);
    add(w, 0, CHUNK);
    run_rows(w, CHUNK);
    add(w, 0, 7);
    add(w, 1, 5);
    run_rows(w, 12);
    for (size_t i = 0; i < 6; i++)
        decode(w, 2);
    tree(w);
    decode(w, 2);
    must(w, session_fork(w->session, 2, 0, session_rewind(w->session, 0, 26), &w->err));
    session_truncate(w->session, 1, session_rewind(w->session, 1, 3));
    decode(w, 3);
    session_clear(w->session, 0);
    must(w, session_fork(w->session, 3, 2, session_length(w->session, 2), &w->err));
    size_t seq[] = {2, 3};
    must(w, session_reorder(w->session, seq, (const size_t[]){1, 1}, 2, &w->err));
    add(w, seq[1], 1);
    add(w, seq[0], 1);
    run_rows(w, 2);
    session_close(w->session);
    return hasher_result(&w->hasher);
}

/* Operations with steps of up to `rows` rows, and the number of gathers in flight. */
static const struct script {
    struct hash (*work)(const struct model *model, const struct session_options *options);
    size_t context, rows, gathers;
} steps = {work, CONTEXT, CHUNK, 0}, long_steps = {work_long, LONG, LONG, 4};

/* ---- a run ---- */

struct test_run {
    const struct model *model;
    const struct script *script;
    struct session_options options;
    struct ranks ranks;
    bool by_layers, deal; /* whole experts are distributed */
    struct hash hash;
    size_t weights; /* bytes of weights read per step */
    size_t most_started;
};

/* A copy of the model that a rank can reduce to its shard; weights are not copied. */
static struct model copy_of(const struct model *model)
{
    const size_t bytes = model->config.layers * sizeof *model->weights.layer;
    struct model copy = *model;
    copy.weights.layer = mem_alloc(1, bytes);
    memcpy(copy.weights.layer, model->weights.layer, bytes);
    return copy;
}

/* Bytes of weights that a step of this rank reads. */
static size_t step_bytes(const struct model *model)
{
    struct op_counts counts;
    struct err err;
    check(model_counts(&counts, model, &(struct cache_types){.all = {DTYPE_F32, DTYPE_F32}}, &err) == 0,
          "not counted");
    return counts.weight_bytes;
}

static void *run_rank(void *arg)
{
    struct test_run *run = arg;
    struct err err = {0};
    struct leader leader;
    struct model model = copy_of(run->model);
    int rc = run->by_layers ? shard_model_layers(&model, &run->ranks, NULL, &err)
                            : shard_model_tensors(&model, &run->ranks, run->deal, &err);
    if (rc == 0 && run->ranks.rank == 0) {
        leader = (struct leader){.ranks = &run->ranks};
        run->options.leader = &leader;
        run->hash = run->script->work(&model, &run->options);
        rc = leader_end(&leader, &err);
        leader_close(&leader);
    } else if (rc == 0) {
        rc = replicate(&model, &run->options, &err);
    }
    check(rc == 0, "rank %d: %s", run->ranks.rank, err.text);
    run->weights = step_bytes(&model);
    free(model.weights.layer);
    return NULL;
}

/* Rank 0's run; receives the largest number of bytes of weights of any rank. */
static struct test_run run_split(const struct test_run *like, int size, size_t *most)
{
    struct test_run run[MAX_RANKS];
    struct meeting meeting = {.mutex = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER};
    pthread_t thread[MAX_RANKS];
    pthread_barrier_init(&meeting.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        run[r] = *like;
        run[r].ranks =
            (struct ranks){.ops = &thread_ranks_ops, .rank = r, .size = size, .state = &meeting};
        if (pthread_create(&thread[r], NULL, run_rank, &run[r]) != 0)
            exit(1);
    }
    *most = 0;
    for (int r = 0; r < size; r++) {
        pthread_join(thread[r], NULL);
        *most = size_max(*most, run[r].weights);
    }
    pthread_barrier_destroy(&meeting.barrier);
    run[0].most_started = meeting.most_started;
    return run[0];
}

static void compare_split(const struct test_run *run, const char *name, const char *policy, int size,
                          const struct hash *want)
{
    const char *how = run->by_layers ? "layers"
                      : run->deal    ? "whole experts"
                                     : "tensors",
               *kv_type = cache_type_name(run->options.kv_types.all.k);
    const size_t all = step_bytes(run->model);
    size_t most;
    const struct test_run found = run_split(run, size, &most);
    /* steps of models with experts are not sliced */
    const size_t gathers =
        size_min(run->script->gathers, run->model->config.moe->experts ? 1 : SIZE_MAX);
    check(found.most_started == gathers, "%s: %zu gathers of %d ranks in flight at a time, not %zu",
          name, found.most_started, size, gathers);
    check(hash_equal(want, &found.hash),
          "%s, %s, cache %s %s: %d ranks, split by %s, give other logits", name,
          dtype_name(model_weight_type(run->model)), policy, kv_type, size, how);
    check(most * (size_t)size < 2 * all, "%s, split by %s: one of %d ranks has %zu bytes of %zu", name,
          how, size, most, all);
}

/* One model under several policies, with `least` to `most` ranks. */
static void compare(const struct script *script, const struct small *small, enum dtype type,
                    enum dtype kv_type, const char *const *policies, size_t n, int least, int most)
{
    struct err err;
    struct config config = small->text.config;
    config.keys = &small->text.keys;
    config.context = script->context;
    struct model *model = make_model(&config, type, &err);
    struct test_run run = {.model = model,
                           .script = script,
                           .options = {.cpu.attn = attn_find("fused", &err),
                                       .cpu.kernels = kernels_select(getenv("BMC_ISA"), &err),
                                       .kv_types = cache_types_alike(kv_type),
                                       .context = script->context,
                                       .batch = BATCH,
                                       .chunk = script->rows,
                                       .rows = script->rows,
                                       .kept_states = 3,
                                       .recent_states = 2,
                                       .threads = 1,
                                       .threads_prefill = 1}};
    run.options.cpu.precision =
        precision_default(run.options.cpu.kernels, weights_class_of(type), NULL);
    for (size_t i = 0; i < n; i++) {
        run.options.kv = (struct kv_spec){0};
        if (!check(kv_spec_parse(&run.options.kv, policies[i], &err) == 0, "%s", err.text))
            continue;
        const struct hash want = script->work(model, &run.options);
        for (int size = least; size <= most; size++) {
            run.by_layers = false;
            for (int deal = 0; deal < (model->config.moe->experts ? 2 : 1); deal++) {
                run.deal = deal;
                if ((size_t)size <= shard_most_ranks(&model->config))
                    compare_split(&run, small->name, policies[i], size, &want);
            }
            run.by_layers = true;
            if (script == &steps && (size_t)size <= model->config.layers)
                compare_split(&run, small->name, policies[i], size, &want);
        }
    }
    model_close(model);
}

/* Every family with every number of ranks and alternating types; then every type with every
 * policy. Long prompts for some families: heads that end inside blocks, QK norm over all heads,
 * post-norms, parallel blocks, recurrent layers, some of whose norms are over the heads of all ranks. */
int main(void)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_1};
    static const size_t long_ones[] = {1, 3, 6, 7};
    const char *policies[32];
    size_t n = 0;
    kernels_setup();
    threads_set(1);
    for (size_t i = 0; i < ARRAY_LEN(smalls); i++)
        compare(&steps, &smalls[i], types[i % ARRAY_LEN(types)], cache_types[i % 5].type,
                (const char *[]){"bmc:r=8"}, 1, 2, 4);
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        compare(&steps, &states[i], types[i % ARRAY_LEN(types)], cache_types[i % 5].type,
                (const char *[]){"bmc:r=8", "segment"}, 2, 2, 5);
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        compare(&long_steps, &states[i], types[(i + 1) % ARRAY_LEN(types)], DTYPE_F16,
                (const char *[]){"bmc"}, 1, 2, 2);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        compare(&steps, &sizes[i], types[i % ARRAY_LEN(types)], cache_types[i % 5].type,
                (const char *[]){"bmc:r=8", "segment"}, 2, 2, 7);
        compare(&long_steps, &sizes[i], types[(i + 1) % ARRAY_LEN(types)], DTYPE_F16,
                (const char *[]){"paged"}, 1, 2, 3);
    }
    for (size_t i = 0; i < ARRAY_LEN(long_ones); i++)
        compare(&long_steps, &smalls[long_ones[i]], types[i % ARRAY_LEN(types)], DTYPE_F16,
                (const char *[]){"bmc"}, 1, 2, 3);
    for (; kv_policy_name(n); n++)
        policies[n] = kv_policy_name(n);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        compare(&steps, &smalls[0], types[i], cache_types[(i + 2) % 5].type, policies, n, 2, 2);
    compare(&steps, &wide, DTYPE_BF16, DTYPE_F16, (const char *[]){"segment"}, 1, 7, 8);
    return check_result();
}
