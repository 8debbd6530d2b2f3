/* Sessions: the batch, forward passes and cache changes, which are also queued for replicas. */
#include "decode/session.h"

#include "base/mem.h"
#include "backend/split.h"
#include "base/threads.h"
#include "format/kvblock/kvblock.h"
#include "model/model_pages.h"
#include "model/position.h"
#include "model/split_layers.h"
#include "model/weight_kinds.h"
#include "quant/cache_types.h"

struct session {
    const struct model *model;
    struct session_options options;
    struct kv *kv;
    struct forward forward;
    struct read_ahead *reader;
    size_t max_rows;
    /* [batch]: the snapshot file that holds KV entries of the sequence, and its address in the cache's memory */
    struct held_mapping {
        struct kvfile_rows rows;
        struct device_addr at;
    } * mapped;
    bool *foreign;                       /* [batch]: session_has_foreign() */
    const char *stored_from;             /* session_stored_from() */
    struct kv_types *layer_types;        /* options.kv_types.layer */
    const struct backend_memory *memory; /* the cache's */
    /* of a model that is split: */
    bool *on_host; /* [layers + SPLIT_PARTS]; NULL: it is not */
    size_t device_layers;
    const struct backend_memory **layer_memory; /* [layers of the cache]: kv_spec.layer_memory */
    size_t *rope_length; /* [batch]: length that its rotary frequencies are for; 0: any */
    /* The batch of the next forward pass. */
    uint32_t *token;          /* [max_rows]: token ids */
    size_t *position;         /* [max_rows]: positions in the sequences */
    struct attn_query *query; /* [batch]: one per sequence in the pass */
    size_t n_rows, n_queries;
    size_t first_output; /* session_skip_outputs() */
};

/* The distance of the states that the prefix cache on disk stores, and what decided it: states are as near as three limits
 * on their bytes per token allow. They have at most 4/5 of the bytes of KV entries, so that together with those at ends of
 * prompts they have fewer. Storing them takes at most a SHARE of the time of computing the tokens between them: a byte is
 * hashed and written in about the time of STORE_MACS multiply-adds of a prompt, a ratio of rates that stands for all
 * machines, since processes on several of them share a folder and positions. And those of PROMPT tokens take at most half
 * of the folder. A pass passes few of them. */
static size_t stored_distance(const struct session_options *o, const struct shard_shapes *all,
                              const struct config *c, const char **from)
{
    enum { LEAST = 64, STORE_MACS = 160, SHARE = 16, PROMPT = 16384, IN_PASS = STATE_MARKS * 2 / 3 };
    const struct {
        const char *from;
        size_t bytes; /* per token */
    } limit[] = {
        {"kv", all->kv.layers ? kv_shape_row_bytes(&all->kv) * 4 / 5 : SIZE_MAX},
        {"computing", config_layer_macs(c) / (STORE_MACS * SHARE)},
        {"folder", o->stored_bytes ? o->stored_bytes / 2 / PROMPT : SIZE_MAX},
    };
    size_t least = 0;
    *from = NULL;
    if (!all->state.conv || (!o->prefix_store && !o->stored_every) || o->leader)
        return 0;
    for (size_t i = 1; i < ARRAY_LEN(limit); i++)
        least = limit[i].bytes < limit[least].bytes ? i : least;
    const size_t cost = state_distance(&all->state, limit[least].bytes, LEAST, SIZE_MAX / 4),
                 every = o->stored_every ? o->stored_every : cost, pass = div_up(o->chunk, IN_PASS);
    *from = pass > every      ? "pass"
            : o->stored_every ? "option"
            : cost == LEAST   ? "least"
                              : limit[least].from;
    return round_up(size_max(every, pass), KVBLOCK_TOKENS);
}

/* What the cache keeps besides recurrent state; passes that verify draft tokens have up to `rows`.
 * All ranks keep states at the same positions. */
static struct state_options state_options_of(const struct session_options *o,
                                             const struct shard_shapes *local,
                                             const struct shard_shapes *all,
                                             const struct shard_shapes *max, bool ranks, bool on_host)
{
    /* replicas do not know a memory limit, and all ranks keep the same states */
    const bool ample = !o->memory_bytes && !ranks;
    const size_t row_bytes = size_max(kv_shape_row_bytes(&all->kv), 1);
    return (struct state_options){
        .shape = local->state,
        .largest = max->state,
        .every = state_distance(&all->state, row_bytes, STATE_NEAREST, STATE_FARTHEST),
        .stored = o->stored_every,
        .block = KVBLOCK_TOKENS,
        .pass = o->chunk,
        .rows = size_max(o->rows, o->batch) / o->batch,
        .kept = o->kept_states,
        .cost = ample ? div_up(state_bytes(&all->state), row_bytes) : 0,
        .recent = o->recent_states,
        .replay = (on_host ? backends[0] : o->backend)->replay,
        .own = &o->cpu};
}

/* Sparse attention chooses among all positions, in layers that may use the choice of one before. */
static int check_sparse(const struct session *s, struct err *err)
{
    if (!s->model->config.latent->index_heads)
        return 0;
    if (kv_spec_rolling(&s->options.kv))
        return err_set(
            err,
            "%s: sparse attention chooses among all positions, of which policy %s drops some: "
            "choose another --kv",
            s->model->name, kv_spec_name(&s->options.kv));
    return s->model->pipeline_parallel
               ? err_set(err,
                         "%s: sparse attention does not support pipeline parallelism: use "
                         "--parallelism tensor or data",
                         s->model->name)
               : 0;
}

/* Chooses the memory of each layer of the cache: that of who computes it, also of indexers. An unused one has the CPU's. */
static void place_layers(struct session *s, const struct kv_shape *shape)
{
    const struct config *c = &s->model->config;
    for (size_t i = 0; i < shape->layers; i++)
        s->layer_memory[i] = backends[0]->memory;
    for (size_t l = 0; l < c->layers; l++) {
        if (s->on_host[l])
            continue;
        if (config_stores_kv(c, 0, c->layers, l))
            s->layer_memory[config_kv_index(c, 0, c->layers, l)] = s->options.backend->memory;
        if (c->plan[l].has_index)
            s->layer_memory[config_indexer_index(c, l)] = s->options.backend->memory;
    }
}

/* Splits the model's layers between the device and the CPU, if that is asked for or needed. */
static int split_model(struct session *s, const struct kv_shape *shape, struct err *err)
{
    const struct model *m = s->model;
    const struct session_options *o = &s->options;
    const size_t layers = m->config.layers;
    s->device_layers = o->backend == backends[0] ? 0 : layers + 1;
    if (!s->device_layers || (!o->gpu_layers && !o->fallback))
        return 0;
    const char *whole = m->ranks   ? "ranks"
                        : m->store ? "experts that are read from the file"
                        : m->loras ? "adapters"
                                   : NULL;
    if (whole)
        return err_set(err, "a model with %s is on one backend: leave --gpu-layers and --fallback out",
                       whole);
    s->on_host = mem_zalloc(layers + SPLIT_PARTS, sizeof *s->on_host);
    s->layer_memory = mem_zalloc(size_max(shape->layers, 1), sizeof *s->layer_memory);
    if (!s->on_host || !s->layer_memory)
        return err_no_memory(err, "%zu layers", layers);
    const int n = split_layers(s->on_host, m, o->backend, shape,
                               o->gpu_layers ? o->gpu_layers : SIZE_MAX, o->fallback, err);
    if (n < 0)
        return -1;
    s->device_layers = (size_t)n;
    if (!memchr(s->on_host, true, layers + SPLIT_PARTS)) {
        free(s->on_host);
        s->on_host = NULL;
        return 0;
    }
    s->memory = split_memory(o->backend);
    place_layers(s, shape);
    return 0;
}

/* Opens the KV cache and gives it the layers' sliding windows, outside which it may evict entries.
 * Lowers options.chunk to the cache's limit on tokens per pass, if it has one. */
static int open_cache(struct session *s, struct err *err)
{
    const struct config *c = &s->model->config;
    const struct session_options *o = &s->options;
    const struct shard_shapes local = shard_shapes(s->model, o->context, &o->kv_types),
                              all = shard_shapes_all(s->model, o->context, &o->kv_types),
                              max = shard_shapes_max(s->model, o->context, &o->kv_types);
    s->memory = o->backend->memory;
    if (split_model(s, &local.kv, err) < 0 || check_sparse(s, err) < 0)
        return -1;
    const size_t layers = c->layers, first = s->model->pipeline_parallel ? s->model->first_layer : 0,
                 own_layers = s->model->pipeline_parallel ? s->model->n_layers : layers;
    /* of this rank's cache, which may have one unused layer; then those of all layers */
    size_t *windows = mem_zalloc(3 * layers + 1, sizeof *windows),
           *all_windows = windows + 2 * layers + 1;
    if (!windows)
        return err_no_memory(err, "%zu layers", layers);
    size_t n = 0;
    for (size_t l = 0; l < layers; l++) {
        if (config_stores_kv(c, first, own_layers, l))
            windows[config_kv_index(c, first, own_layers, l)] = c->plan[l].window;
        if (c->plan[l].owns_kv)
            all_windows[n++] = c->plan[l].window;
    }
    struct kv_spec spec = o->kv;
    spec.windows = windows;
    spec.memory = s->memory;
    spec.layer_memory = s->on_host ? s->layer_memory : NULL;
    if (s->model->ranks) /* all ranks derive the same limits for their caches */
        spec.shards = (struct kv_shards){&max.kv, all_windows, n};
    s->options.stored_every = stored_distance(o, &all, c, &s->stored_from);
    spec.state = state_options_of(o, &local, &all, &max, s->model->ranks, s->on_host != NULL);
    const int rc = kv_open(&s->kv, &spec, &local.kv, o->batch, err);
    free(windows);
    s->options.kv.scales = NULL; /* borrowed for kv_open() */
    if (rc < 0 || !kv_setup(s->kv)->step_rows)
        return rc;
    if (config_is_encoder(c))
        return err_set(err,
                       "%s: an encoder computes a text in one pass, and this cache has room for %zu "
                       "tokens of one: "
                       "choose another --kv",
                       s->model->name, kv_setup(s->kv)->step_rows);
    s->options.chunk = size_min(s->options.chunk, kv_setup(s->kv)->step_rows);
    return 0;
}

/* Queues a command (leader.h) with its arguments for the replicas, if there are any. */
#define COMMAND(session, command, ...)                                                                 \
    leader_command((session)->options.leader, command, (const size_t[]){__VA_ARGS__},                  \
                   sizeof(const size_t[]){__VA_ARGS__} / sizeof(size_t))

static int send_commands(struct session *s, struct err *err)
{
    return s->options.leader ? leader_send(s->options.leader, err) : 0;
}

/* A representative of all lengths with the same rotary frequencies as `length`; 0: those within the original
 * context. */
static size_t rope_length(const struct config *c, size_t length)
{
    if (!rope_depends(c->rope, length))
        return 0;
    return c->rope->scaling == ROPE_DYNAMIC ? length : c->rope->original + 1;
}

static int alloc_batch(struct session *s, struct err *err)
{
    const size_t batch = s->options.batch;
    s->token = mem_alloc(s->max_rows, sizeof *s->token);
    s->position = mem_alloc(s->max_rows, sizeof *s->position);
    s->query = mem_alloc(batch, sizeof *s->query);
    s->mapped = mem_zalloc(batch, sizeof *s->mapped);
    s->foreign = mem_zalloc(batch, sizeof *s->foreign);
    s->rope_length = mem_alloc(batch, sizeof *s->rope_length);
    for (size_t i = 0; s->rope_length && i < batch; i++)
        s->rope_length[i] = rope_length(&s->model->config, s->options.context);
    return s->token && s->position && s->query && s->mapped && s->foreign && s->rope_length &&
                   s->layer_types
               ? 0
               : err_no_memory(err, "a batch of %zu tokens", s->max_rows);
}

int session_open(struct session **out, const struct model *model, const struct session_options *options,
                 struct err *err)
{
    struct session *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a session");
    if (options->recompute && options->kv.sinks) {
        free(s);
        *out = NULL;
        return err_set(err,
                       "sinks=%zu is for a window that slides: a context that is recomputed keeps "
                       "its first tokens with bmc-gen --keep",
                       options->kv.sinks);
    }
    *s = (struct session){.model = model, .options = *options};
    if (!s->options.backend)
        s->options.backend = backends[0];
    if (s->options.backend->only_f32)
        s->options.cpu.precision = PRECISION_F32;
    s->layer_types = mem_alloc(size_max(options->kv_types.n, 1), sizeof *s->layer_types);
    if (s->layer_types && options->kv_types.n)
        memcpy(s->layer_types, options->kv_types.layer, options->kv_types.n * sizeof *s->layer_types);
    s->options.kv_types.layer = s->layer_types;
    if (config_is_encoder(&model->config)) /* a text is computed in one pass */
        s->options.chunk = size_max(options->chunk, options->context);
    s->max_rows = size_max(size_max(s->options.chunk, options->rows), options->batch);
    /* scratch buffers are sized for the larger number of threads */
    threads_set(options->threads > options->threads_prefill ? options->threads
                                                            : options->threads_prefill);
    if (alloc_batch(s, err) < 0 || open_cache(s, err) < 0 ||
        forward_open(&s->forward, model, s->options.backend, &s->options.cpu, s->kv, s->on_host,
                     s->max_rows, err) < 0) {
        session_close(s);
        *out = NULL;
        return -1;
    }
    s->forward.attn_per_sequence = options->split;
    s->reader = read_ahead_begin(model);
    COMMAND(s, COMMAND_OPEN, options->context, options->batch, options->chunk, options->rows,
            options->split, options->kv.lockstep, options->kept_states, options->recent_states);
    return 0;
}

static void unmap(const struct session *s, struct held_mapping *held)
{
    if (!addr_is_null(held->at))
        s->memory->disown(held->at, held->rows.bytes);
    held->at = (struct device_addr){0};
    kvfile_unmap_rows(&held->rows);
}

void session_close(struct session *s)
{
    if (!s)
        return;
    read_ahead_end(s->reader);
    forward_close(&s->forward);
    kv_close(s->kv);
    for (size_t i = 0; s->mapped && i < s->options.batch; i++)
        unmap(s, &s->mapped[i]);
    free(s->mapped);
    free(s->foreign);
    free(s->rope_length);
    free(s->token);
    free(s->position);
    free(s->query);
    free(s->layer_types);
    free(s->on_host);
    free(s->layer_memory);
    free(s);
}

const struct model *session_model(const struct session *s) { return s->model; }

size_t session_vocab(const struct session *s) { return s->model->config.vocab; }

const struct session_options *session_options(const struct session *s) { return &s->options; }

const char *session_stored_from(const struct session *s) { return s->stored_from; }

struct kv *session_kv(const struct session *s) { return s->kv; }

size_t session_max_tokens(const struct session *s) { return s->max_rows; }

bool session_same_entries(const struct session *s, size_t a, size_t b)
{
    return forward_same_rope(&s->forward, a, b) && lora_same_use(&s->forward.lora, a, b);
}

size_t session_device_layers(const struct session *s) { return s->device_layers; }
const bool *session_on_host(const struct session *s) { return s->on_host; }

double session_wait_ms(const struct session *s) { return forward_waited_ms(&s->forward); }

struct forward *session_pass(struct session *s) { return &s->forward; }

size_t session_length(const struct session *s, size_t seq) { return kv_position(s->kv, seq); }

size_t session_remaining(const struct session *s, size_t seq)
{
    return session_is_bounded(s) ? s->options.context - session_length(s, seq) : SIZE_MAX;
}

bool session_is_bounded(const struct session *s)
{
    return !kv_setup(s->kv)->window || s->options.recompute ||
           s->model->config.position == POSITION_LEARNED;
}

size_t session_kept_tokens(const struct session *s, const uint32_t *id, size_t n)
{
    const size_t leading = s->model->tok ? tokenizer_leading(s->model->tok, id, n) : 0;
    return size_min(size_max(s->options.keep, leading), s->options.context - 1);
}

bool session_scaled(const struct session *s, size_t seq) { return s->rope_length[seq] > 0; }

size_t session_unscaled(const struct session *s, size_t seq)
{
    const struct config *c = &s->model->config;
    const bool stays = session_scaled(s, seq) || !rope_depends(c->rope, SIZE_MAX);
    return stays ? SIZE_MAX : c->rope->original - size_min(c->rope->original, session_length(s, seq));
}

void session_begin(struct session *s, size_t seq, size_t tokens, size_t length)
{
    const struct config *c = &s->model->config;
    const size_t max = session_is_bounded(s) ? s->options.context : c->context;
    const size_t planned =
        rope_depends(c->rope, tokens) ? size_max(tokens, size_min(length, max)) : tokens;
    COMMAND(s, COMMAND_BEGIN, seq, tokens, length);
    if (s->rope_length[seq] != rope_length(c, planned))
        session_clear(s, seq);
    s->rope_length[seq] = rope_length(c, planned);
    forward_begin(&s->forward, seq, planned);
    offload_expect(s->kv, seq, length, s->options.chunk);
}

void session_adapt(struct session *s, size_t seq, const float *lora_factor)
{
    if (lora_use(&s->forward.lora, seq, lora_factor))
        session_clear(s, seq);
}

size_t batch_space(const struct session *s)
{
    const size_t max = kv_setup(s->kv)->step_rows, space = s->max_rows - s->n_rows;
    return max ? size_min(space, max) : space;
}

size_t batch_tokens(const struct session *s) { return s->n_rows; }

size_t batch_add(struct session *s, size_t seq, const uint32_t *token, size_t n)
{
    assert(n <= batch_space(s) && s->n_queries < s->options.batch);
    const size_t first = s->n_rows, position = session_length(s, seq);
    for (size_t i = 0; i < n; i++) {
        s->token[first + i] = token[i];
        s->position[first + i] = position + i;
    }
    s->query[s->n_queries++] = (struct attn_query){.seq = seq, .first = first, .rows = n};
    s->n_rows += n;
    return first;
}

size_t batch_add_tree(struct session *s, size_t seq, const uint32_t *token, const size_t *depth,
                      size_t n, const uint32_t *ancestors, const size_t *ancestors_at)
{
    const size_t first = batch_add(s, seq, token, n), position = session_length(s, seq);
    for (size_t i = 0; i < n; i++)
        s->position[first + i] = position + depth[i];
    s->query[s->n_queries - 1].ancestors = ancestors;
    s->query[s->n_queries - 1].ancestors_at = ancestors_at;
    return first;
}

static void queue_step(struct session *s, const struct step *step, int threads)
{
    struct leader *leader = s->options.leader;
    COMMAND(s, COMMAND_FORWARD, step->rows, step->n_queries, threads == s->options.threads_prefill);
    leader_ids(leader, step->token, step->rows);
    leader_words(leader, step->position, step->rows);
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++) {
        leader_words(leader, (const size_t[]){q->seq, q->rows, q->ancestors != NULL}, 3);
        if (q->ancestors) {
            leader_words(leader, q->ancestors_at, q->rows + 1);
            leader_ids(leader, q->ancestors, q->ancestors_at[q->rows]);
        }
    }
}

/* Unmaps the sequence's snapshot file once the cache has copied the entries or dropped them. */
static void release_mapping(struct session *s, size_t seq)
{
    if (!kv_seq_info(s->kv, seq).attached)
        unmap(s, &s->mapped[seq]);
}

int session_forward_step(struct session *s, const struct step *step, int threads, struct err *err)
{
    const size_t first = s->first_output;
    s->first_output = 0; /* also for the pass behind one that fails */
    threads_set(threads);
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++) {
        const int rc = kv_ensure(s->kv, q->seq, q->rows, err);
        release_mapping(s, q->seq);
        if (rc < 0)
            return -1;
    }
    queue_step(s, step, threads);
    if (send_commands(s, err) < 0)
        return -1;
    forward_skip_outputs(&s->forward, first);
    return forward_step(&s->forward, step, err);
}

void session_skip_outputs(struct session *s, size_t first) { s->first_output = first; }

int session_forward(struct session *s, int threads, struct err *err)
{
    const struct step step = {s->n_rows, s->token, s->position, s->query, s->n_queries};
    s->n_rows = s->n_queries = 0;
    return session_forward_step(s, &step, threads, err);
}

void session_commit(struct session *s, size_t seq, size_t rows)
{
    COMMAND(s, COMMAND_COMMIT, seq, rows);
    kv_commit(s->kv, seq, rows);
}

void session_accept(struct session *s, size_t seq, const size_t *row, size_t n)
{
    size_t leading = 0;
    while (leading < n && row[leading] == leading)
        leading++;
    if (leading == n) { /* the accepted entries are consecutive: none has to move */
        session_commit(s, seq, n);
        return;
    }
    COMMAND(s, COMMAND_ACCEPT, seq, n);
    leader_words(s->options.leader, row, n);
    kv_accept(s->kv, seq, row, n);
}

int session_run(struct session *s, int threads, struct err *err)
{
    const size_t n = s->n_queries;
    if (session_forward(s, threads, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        session_commit(s, s->query[i].seq, s->query[i].rows);
    return 0;
}

static void queue_logits(struct session *s, const size_t *row, size_t n)
{
    COMMAND(s, COMMAND_LOGITS, n);
    leader_words(s->options.leader, row, n);
}

int session_refuse_output(const struct session *s, const char *whose, const char *values,
                          struct err *err)
{
    const struct cache_types_text type = cache_types_format(&s->options.kv_types);
    if (kv_overflowed(s->kv))
        return err_set(err,
                       "%s gives no finite %s: some of its keys or values do not fit --cache-type %s, "
                       "which holds f16 numbers (65504 at most); use bf16, f32 or q8",
                       whose, values, type.text);
    if (s->options.leader && kv_shape_any(&kv_setup(s->kv)->shape, cache_type_narrow))
        return err_set(err,
                       "%s gives no finite %s: its keys or values may not fit --cache-type %s, use "
                       "bf16, f32 or q8; or it is damaged, see bmc-convert --verify",
                       whose, values, type.text);
    return err_set(err, "%s gives no finite %s: it may be damaged, see bmc-convert --verify", whose,
                   values);
}

bool session_is_async(const struct session *s)
{
    return s->options.leader && !pipeline_is_last(&s->forward.pipeline);
}

int session_submit(struct session *s, const size_t *row, size_t n, size_t *request, struct err *err)
{
    if (model_need_head(s->model, err) < 0)
        return -1;
    *request = s->forward.pipeline.n_requests;
    for (size_t from = 0; from < n; from += LEADER_LOGITS) {
        queue_logits(s, row + from, size_min(LEADER_LOGITS, n - from));
        forward_submit(&s->forward);
    }
    return send_commands(s, err);
}

int session_collect(struct session *s, size_t request, size_t n, float *logits, struct err *err)
{
    for (size_t from = 0; from < n; from += LEADER_LOGITS)
        if (forward_collect(&s->forward, request++, size_min(LEADER_LOGITS, n - from),
                            logits + from * s->model->config.vocab, err) < 0)
            return -1;
    return 0;
}

int session_logits(struct session *s, const size_t *row, size_t n, float *logits, struct err *err)
{
    const size_t vocab = s->model->config.vocab, max = s->options.leader ? LEADER_LOGITS : n;
    if (model_need_head(s->model, err) < 0)
        return -1;
    for (size_t from = 0, count; from < n; from += count) {
        count = size_min(max, n - from);
        queue_logits(s, row + from, count);
        if (send_commands(s, err) < 0 ||
            forward_logits(&s->forward, row + from, count, logits + from * vocab, err) < 0)
            return -1;
    }
    return 0;
}

int session_tap(struct session *s, const size_t *layer, size_t n, struct err *err)
{
    if (s->model->pipeline_parallel)
        return err_set(err, "a draft head needs hidden states that other ranks have: use --parallelism "
                            "data, or draft with --lookup");
    return forward_tap(&s->forward, layer, n, err);
}

void session_hidden(const struct session *s, size_t row, float *state)
{
    forward_hidden(&s->forward, row, state);
}

void session_set_feature(struct session *s, size_t row, bool own, const float *state)
{
    forward_set_feature(&s->forward, row, own, state);
}

void session_hold_mapping(struct session *s, size_t seq, struct kvfile_rows mapping,
                          struct device_addr at)
{
    assert(!s->mapped[seq].rows.data);
    s->mapped[seq] = (struct held_mapping){mapping, at};
    s->foreign[seq] = true;
    release_mapping(s, seq);
}

size_t session_rewind(const struct session *s, size_t seq, size_t rows)
{
    return kv_rewind(s->kv, seq, rows);
}

void session_mark(struct session *s, size_t seq, size_t position)
{
    if (!kv_has_state(s->kv))
        return;
    COMMAND(s, COMMAND_MARK, seq, position);
    kv_mark(s->kv, seq, position);
}

void session_truncate(struct session *s, size_t seq, size_t rows)
{
    COMMAND(s, COMMAND_TRUNCATE, seq, rows);
    kv_truncate(s->kv, seq, rows);
    s->foreign[seq] = s->foreign[seq] && rows;
    release_mapping(s, seq);
}

void session_clear(struct session *s, size_t seq) { session_truncate(s, seq, 0); }

int session_fork(struct session *s, size_t to, size_t from, size_t rows, struct err *err)
{
    COMMAND(s, COMMAND_FORK, to, from, rows);
    s->foreign[to] = s->foreign[from];
    return kv_fork(s->kv, to, from, rows, err);
}

int session_extend(struct session *s, size_t seq, const struct kv_layer_rows *layer, size_t first,
                   size_t rows, size_t stored, size_t expected, struct err *err)
{
    assert(!s->options.leader);
    return kv_extend(s->kv, seq, layer, first, rows, stored, expected, err);
}

bool session_has_foreign(const struct session *s, size_t seq) { return s->foreign[seq]; }

int session_reorder(struct session *s, size_t *seq, const size_t *parent, size_t n, struct err *err)
{
    COMMAND(s, COMMAND_REORDER, n);
    leader_words(s->options.leader, seq, n);
    leader_words(s->options.leader, parent, n);
    bool foreign = false;
    for (size_t i = 0; i < n; i++)
        foreign = foreign || s->foreign[seq[i]];
    for (size_t i = 0; i < n; i++)
        s->foreign[seq[i]] = foreign;
    return kv_reorder(s->kv, seq, parent, n, err);
}
