/* Runs the list of operations of a forward pass (layer_ops.c).
 *
 * A list is cut into stages: at operations that need all rows at once, and behind each all-gather. To overlap
 * all-gather with arithmetic, tensor-parallel ranks run each stage over the rows in slices; a single process runs all
 * rows at once. */
#include "model/forward.h"

#include "backend/split.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "model/parallel/forward_relay.h"
#include "model/position.h"

/* One run over a part of the list. */
struct list_walk {
    struct forward *f;
    const struct op_step *step;
    bool shows_layers;
    size_t layers_done;
};

/* ---- the sides of a split model ---- */

void forward_swap(struct forward *f)
{
    struct forward_side other = {f->backend, f->pass, f->arena, {{0}}};
    memcpy(other.buffer, f->buffer, sizeof other.buffer);
    f->backend = f->other.backend;
    f->pass = f->other.pass;
    f->arena = f->other.arena;
    memcpy(f->buffer, f->other.buffer, sizeof other.buffer);
    f->other = other;
    f->host_runs = !f->host_runs;
    if (!f->backend)
        return;
    f->observer.memory = f->backend->memory;
    f->experts.backend = f->backend;
    f->experts.pass = f->pass;
}

/* Switches to the operation's backend, with the buffers that outlive a layer, of the first `rows` rows. */
static void enter_side(struct forward *f, bool host, size_t rows)
{
    static const enum buffer kept[] = {BUFFER_X, BUFFER_LAYER_INPUTS};
    if (!f->on_host || f->host_runs == host)
        return;
    forward_swap(f);
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        const size_t bytes = rows * f->list.width[kept[i]] * sizeof *f->passed;
        if (!bytes)
            continue;
        f->other.backend->memory->read(f->passed, f->other.buffer[kept[i]], bytes);
        f->backend->memory->write(f->buffer[kept[i]], f->passed, bytes);
        f->boundary_bytes += bytes;
    }
}

static int begin_pass(struct forward *f, const struct op_step *step, struct err *err)
{
    enter_side(f, f->on_host && f->on_host[f->model->config.layers + SPLIT_EMBED], 0);
    f->last_rows = step->rows;
    return f->backend->begin(f->pass, step, err) < 0 ||
                   (f->on_host && f->other.backend->begin(f->other.pass, step, err) < 0)
               ? -1
               : 0;
}

static double convert_ms(const struct forward *f)
{
    return f->backend->convert_ms(f->pass) +
           (f->on_host ? f->other.backend->convert_ms(f->other.pass) : 0);
}

/* ---- what passes do, and its times ---- */

static void lap_begin(const struct forward *f)
{
    if (!f->work)
        return;
    struct pass_times *times = &f->work->times;
    times->lap_ms = clock_ms();
    times->wait_ms -= threads_waited_ms();
    times->convert_ms -= convert_ms(f);
}

/* Adds the time since the previous call to that of `phase`. */
static void lap(const struct forward *f, enum forward_phase phase)
{
    if (!f->work)
        return;
    const double now = clock_ms();
    f->work->times.ms[phase] += now - f->work->times.lap_ms;
    f->work->times.lap_ms = now;
}

static void lap_end(const struct forward *f)
{
    if (!f->work)
        return;
    f->work->times.wait_ms += threads_waited_ms();
    f->work->times.convert_ms += convert_ms(f);
}

static void count_step(const struct forward *f, const struct step *step, size_t expert_runs)
{
    if (!f->work)
        return;
    const struct kv_setup *setup = kv_setup(f->kv);
    const size_t kept = setup->window ? setup->sinks + setup->window : 0;
    work_add_pass(f->work, &f->counts, expert_runs);
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++)
        work_add_rows(f->work, &f->counts, step->position[q->first], q->rows, kept);
    work_skip_outputs(f->work, &f->counts, f->first_output);
}

/* ---- hidden states ---- */

void forward_tap_close(const struct forward *f, struct hidden_tap *tap)
{
    f->backend->memory->free(VM_MALLOC, tap->state,
                             tap->n * f->model->config.hidden * f->max_rows * sizeof(float));
    *tap = (struct hidden_tap){0};
}

int forward_tap(struct forward *f, const size_t *layer, size_t n, struct err *err)
{
    const size_t bytes = n * f->model->config.hidden * f->max_rows * sizeof(float);
    forward_tap_close(f, &f->tap);
    if (f->on_host)
        return err_set(err, "hidden states are read from models that are on one backend: leave "
                            "--gpu-layers and --fallback out");
    f->tap.state = f->backend->memory->alloc(VM_MALLOC, bytes);
    if (addr_is_null(f->tap.state))
        return err_no_memory(err, "%zu hidden states of %zu tokens", n, f->max_rows);
    f->tap.n = n;
    for (size_t i = 0; i < n; i++)
        f->tap.layer[i] = layer[i];
    return 0;
}

void forward_hidden(const struct forward *f, size_t row, float *state)
{
    const size_t bytes = f->tap.n * f->model->config.hidden * sizeof *state;
    f->backend->memory->read(state, addr_add(f->tap.state, row * bytes), bytes);
}

void forward_set_feature(struct forward *f, size_t row, bool own, const float *state)
{
    const struct config *c = &f->model->config;
    const size_t bytes = (own ? c->hidden : config_feature_width(c)) * sizeof *state;
    f->own_features = own;
    f->backend->memory->write(addr_add(f->buffer[BUFFER_FEATURE], row * bytes), state, bytes);
}

/* Keeps the residual stream that enters a layer, or the final hidden states, if they are asked for. */
static int tap_rows(struct forward *f, const struct op *op, const struct op_step *step,
                    struct row_range rows, struct err *err)
{
    const struct op_range *norm = &f->list.final_norm;
    const size_t n = f->tap.n;
    for (size_t i = 0; i < n; i++) {
        if (f->tap.layer[i] != op->layer)
            continue;
        struct op keep = {.kind = OP_COPY,
                          .in = op->in,
                          .out = {BUFFER_TAP, i * op->width, n * op->width},
                          .width = op->width,
                          .copy = {.heads = 1}};
        if (op->layer == HIDDEN_FINAL && norm->n) {
            keep.in.buffer = BUFFER_H;
            if (f->backend->run(f->pass, &f->list.op[norm->first], step, rows, err) < 0)
                return -1;
        }
        f->buffer[BUFFER_TAP] = f->tap.state;
        if (f->backend->run(f->pass, &keep, step, rows, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the list ---- */

static int run_op(const struct list_walk *walk, const struct op *op, struct row_range rows,
                  struct err *err)
{
    struct forward *f = walk->f;
    enter_side(f, op->on_host, rows.first + rows.n);
    switch (op->kind) {
    case OP_EXPERTS: return experts_run(&f->experts, op, walk->step, rows, err);
    case OP_GATHER:
        return shard_gather_start(&f->shard, op->gather.sizes, (enum dim)op->gather.dim, op->in,
                                  op->out, rows, err);
    case OP_TAP: return tap_rows(f, op, walk->step, rows, err);
    case OP_KEEP_KV: forward_relay_keep(f, op, rows); return 0;
    default:
        return observe_op(&f->observer, op, walk->step, rows, err) < 0
                   ? -1
                   : f->backend->run(f->pass, op, walk->step, rows, err);
    }
}

/* Shows progress: the layers before `layer` are finished. */
static void show_layers(struct list_walk *walk, size_t layer)
{
    const struct forward *f = walk->f;
    const size_t first = f->pipeline.first_layer, end = first + f->pipeline.n_layers;
    while (f->layer_done && walk->shows_layers && first + walk->layers_done < size_min(layer, end))
        f->layer_done(f->layer_arg, ++walk->layers_done, f->pipeline.n_layers);
}

/* The operation behind the stage that begins at `at`. */
static size_t stage_end(const struct op_list *list, size_t at, size_t end)
{
    if (op_is_whole(&list->op[at]))
        return at + 1;
    while (at < end && !op_is_whole(&list->op[at]))
        if (list->op[at++].kind == OP_GATHER)
            break;
    return at;
}

static int run_stage(const struct list_walk *walk, size_t first, size_t end, struct row_range rows,
                     struct err *err)
{
    struct forward *f = walk->f;
    if (shard_gather_finish(&f->shard, rows, err) < 0)
        return -1;
    for (const struct op *op = f->list.op + first; op < f->list.op + end; op++) {
        if (run_op(walk, op, rows, err) < 0)
            return -1;
        if (op + 1 == f->list.op + end || op[1].phase != op->phase)
            lap(f, op->phase);
    }
    return 0;
}

/* Runs operations [first, end) over `all` rows, in up to `slices` slices. */
static int run_ops(struct list_walk *walk, size_t first, size_t end, struct row_range all,
                   size_t slices, struct err *err)
{
    const struct op_list *list = &walk->f->list;
    for (size_t at = first, next; at < end; at = next) {
        next = stage_end(list, at, end);
        const size_t n = op_is_whole(&list->op[at]) ? 1 : slices;
        for (size_t i = 0; i < n; i++) {
            const struct row_range rows = n == 1 ? all : shard_rows(all.n, n, i);
            if (run_stage(walk, at, next, rows, err) < 0)
                return -1;
        }
        show_layers(walk, list->op[next - 1].layer);
    }
    return shard_gather_finish(&walk->f->shard, all, err);
}

static int run_range(struct list_walk *walk, struct op_range range, size_t rows, struct err *err)
{
    return run_ops(walk, range.first, range.first + range.n, (struct row_range){0, rows}, 1, err);
}

/* Runs the layers; of the last one's outputs, those from f->first_output on. */
static int run_layers(struct list_walk *walk, struct err *err)
{
    walk->shows_layers = true;
    const struct forward *f = walk->f;
    const struct op_range *layers = &f->list.layers;
    const size_t n = walk->step->rows, end = layers->first + layers->n,
                 slices = f->shard.ranks ? shard_slices_of(&f->model->config, n) : 1;
    const struct row_range all = {0, n}, outputs = {f->first_output, n - f->first_output};
    return run_ops(walk, layers->first, f->list.outputs_from, all, slices, err) < 0
               ? -1
               : run_ops(walk, f->list.outputs_from, end, outputs, slices, err);
}

/* ---- passes ---- */

/* Sets RoPE's cosines and sines, and the factors of Q, for the positions of the batch. Each sequence has its own
 * frequencies. */
static void set_positions(struct forward *f, const struct step *step, struct op_step *to)
{
    const struct config *c = &f->model->config;
    for (size_t i = 0; i < step->rows; i++)
        f->temperature[i] = attn_temperature(c->temperature, step->position[i]);
    for (size_t i = 0; c->position == POSITION_ROPE && i < step->n_queries * f->rope_tables; i++) {
        const struct attn_query *query = &step->query[i / f->rope_tables];
        const size_t table = i % f->rope_tables, half = f->rope_pairs[table],
                     at = table * f->max_rows * f->rope_half + query->first * half;
        rope_angles(f->frequency + (query->seq * f->rope_tables + table) * f->rope_half, half,
                    rope_gain(&c->rope[table], c->context), step->position + query->first, query->rows,
                    f->cosine + at, f->sine + at);
    }
    for (size_t table = 0; table < f->rope_tables; table++) {
        to->cosine[table] = f->cosine + table * f->max_rows * f->rope_half;
        to->sine[table] = f->sine + table * f->max_rows * f->rope_half;
    }
    to->temperature = f->temperature;
}

/* Receives x from the rank before, in a pipeline. */
static int receive_x(struct forward *f, size_t rows, struct err *err)
{
    const size_t n = rows * config_stream_width(&f->model->config);
    if (pipeline_is_first(&f->pipeline))
        return 0;
    if (pipeline_receive(&f->pipeline, f->passed, n, err) < 0)
        return -1;
    f->backend->memory->write(f->buffer[BUFFER_X], f->passed, n * sizeof *f->passed);
    return 0;
}

static int send_x(struct forward *f, size_t rows, struct err *err)
{
    const size_t n = rows * config_stream_width(&f->model->config);
    if (pipeline_is_last(&f->pipeline))
        return 0;
    f->backend->memory->read(f->passed, f->buffer[BUFFER_X], n * sizeof *f->passed);
    return pipeline_send(&f->pipeline, f->passed, n, err);
}

int forward_step(struct forward *f, const struct step *step, struct err *err)
{
    const bool own = config_is_draft_head(&f->model->config) && f->own_features;
    struct op_step at = {.buffer = f->buffer,
                         .rows = step->rows,
                         .token = step->token,
                         .position = step->position,
                         .query = step->query,
                         .n_queries = step->n_queries,
                         .per_sequence = f->attn_per_sequence,
                         .pair = f->experts.pair};
    struct list_walk walk = {.f = f, .step = &at};
    const uint64_t expert_runs = f->experts.runs;
    lap_begin(f);
    set_positions(f, step, &at);
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++)
        lora_add_rows(&f->lora, &at, q->seq, (struct row_range){q->first, q->rows});
    if (begin_pass(f, &at, err) < 0)
        return -1;
    /* every rank computes the inputs of its layers from embeddings, which x then replaces */
    if (((pipeline_is_first(&f->pipeline) || f->model->config.layer_input.width) &&
         run_range(&walk, own ? f->list.draft_own : f->list.embed, step->rows, err) < 0) ||
        receive_x(f, step->rows, err) < 0 || forward_relay_receive(f, &at, err) < 0)
        return -1;
    lap(f, PHASE_OTHER);
    if (run_layers(&walk, err) < 0 || send_x(f, step->rows, err) < 0 ||
        forward_relay_send(f, step->rows, err) < 0)
        return -1;
    lap_end(f);
    count_step(f, step, (size_t)(f->experts.runs - expert_runs));
    return 0;
}

/* ---- logits ---- */

/* Computes logits[n][width] into the caller's memory or, if the backend's is another, through a block of it. */
static int make_logits(struct forward *f, struct op_range head, size_t width, const size_t *row,
                       size_t n, float *logits, struct err *err)
{
    enter_side(f, f->on_host && f->on_host[f->model->config.layers + SPLIT_HEAD], f->last_rows);
    const struct backend_memory *memory = f->backend->memory;
    const size_t bytes = n * width * sizeof *logits;
    const struct op_step step = {.buffer = f->buffer, .rows = n, .picked = row};
    struct list_walk walk = {.f = f, .step = &step};
    const struct device_addr to =
        f->backend->in_process ? memory->adopt(logits, bytes) : memory->alloc(VM_MALLOC, bytes);
    if (addr_is_null(to))
        return err_no_memory(err, "logits of %zu tokens", n);
    f->buffer[BUFFER_LOGITS] = to;
    lap_begin(f);
    const int rc = run_range(&walk, head, n, err);
    lap_end(f);
    if (f->work && width == f->model->config.vocab)
        work_add_logits(f->work, &f->counts, n);
    if (f->backend->in_process) {
        memory->disown(to, bytes);
    } else {
        memory->read(logits, to, bytes);
        memory->free(VM_MALLOC, to, bytes);
    }
    return rc < 0 ? -1 : memory_failed(f->on_host ? split_memory(f->device) : f->device->memory, err);
}

size_t forward_submit(struct forward *f) { return f->pipeline.n_requests++; }

int forward_collect(struct forward *f, size_t request, size_t n, float *logits, struct err *err)
{
    return pipeline_receive_logits(&f->pipeline, request, logits, n * f->model->config.vocab, err);
}

int forward_logits(struct forward *f, const size_t *row, size_t n, float *logits, struct err *err)
{
    const size_t request = forward_submit(f);
    const bool first = pipeline_is_first(&f->pipeline), last = pipeline_is_last(&f->pipeline);
    if (last && make_logits(f, f->list.head, f->model->config.vocab, row, n, logits, err) < 0)
        return -1;
    if (last && !first)
        return pipeline_send_logits(&f->pipeline, request, logits, n * f->model->config.vocab, err);
    return first && !last ? forward_collect(f, request, n, logits, err) : 0;
}

int forward_token_logits(struct forward *f, size_t row, const uint32_t *token, size_t n, float *logits,
                         struct err *err)
{
    const struct op_weight *head = &f->list.head_weight;
    struct op_weight *w = &f->list.product[f->list.token_product].w;
    const size_t vocab = f->model->config.vocab, width = size_min(PACK_OUT, vocab),
                 bytes =
                     layout_bytes(head->matrix.layout, head->matrix.dtype, PACK_OUT, head->matrix.in);
    float block[PACK_OUT];
    if (!f->list.token_head.n)
        return err_set(err, "logits of single tokens need a model with an LM head, in one process");
    for (size_t i = 0; i < n; i++) {
        const size_t first = token[i] / PACK_OUT * PACK_OUT;
        w->matrix.out = size_min(PACK_OUT, vocab - first);
        w->matrix.data = addr_add(head->matrix.data, first / PACK_OUT * bytes);
        if (!addr_is_null(head->bias))
            w->bias = addr_add(head->bias, first * sizeof(float));
        if (make_logits(f, f->list.token_head, width, &row, 1, block, err) < 0)
            return -1;
        logits[i] = block[token[i] - first];
    }
    return 0;
}

/* ---- after pooling ---- */

int forward_pooled(struct forward *f, const float *x, float *y, struct err *err)
{
    enter_side(f, f->on_host && f->on_host[f->model->config.layers + SPLIT_HEAD], 0);
    const struct backend_memory *memory = f->backend->memory;
    const struct config *c = &f->model->config;
    const struct op_range *range = &f->list.pooled;
    const struct op *first = f->list.op + range->first, *last = first + range->n - 1;
    const struct op_step step = {.buffer = f->buffer, .rows = 1};
    struct list_walk walk = {.f = f, .step = &step};
    memory->write(f->buffer[first->in.buffer], x, c->hidden * sizeof *x);
    lap_begin(f);
    const int rc = run_range(&walk, *range, 1, err);
    lap_end(f);
    if (rc == 0)
        memory->read(y, f->buffer[last->out.buffer], config_pooled_width(c) * sizeof *y);
    return rc;
}
