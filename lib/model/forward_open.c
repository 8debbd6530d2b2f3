/* Opening and closing a forward pass: its list of operations, the arena of their buffers, and position tables. */
#include "base/mem.h"
#include "model/op_list.h"
#include "model/parallel/forward_relay.h"
#include "model/position.h"

static void size_rope_tables(struct forward *f, const struct config *c)
{
    f->rope_tables = config_rope_tables(c);
    f->rope_pairs[LAYER_ROPE] = c->rope[LAYER_ROPE].dim / 2;
    f->rope_pairs[LAYER_ROPE_LOCAL] = c->rope[LAYER_ROPE_LOCAL].dim / 2;
    f->rope_half = size_max(f->rope_pairs[LAYER_ROPE], f->rope_pairs[LAYER_ROPE_LOCAL]);
}

/* ---- the list ---- */

typedef void list_part(struct builder *b);

static struct op_range list_range(struct builder *b, list_part *part)
{
    const size_t first = list_end(b);
    part(b);
    return (struct op_range){first, list_end(b) - first};
}

static void target_embedding(struct builder *b)
{
    if (config_is_draft_head(b->c))
        draft_embedding(b, false);
    else
        embedding(b);
}

static void own_embedding(struct builder *b)
{
    if (config_is_draft_head(b->c))
        draft_embedding(b, true);
}

static void final_norm(struct builder *b)
{
    if (b->c->final_norm)
        op_norm(b, hidden_of(b, BUFFER_X), hidden_of(b, BUFFER_H), b->c->hidden,
                &b->weights->final_norm);
}

/* Points the operations to their products, which do not move any more. */
static void seal_list(struct op_list *list)
{
    const struct op_product *next = list->product;
    for (struct op *op = list->op; op < list->op + list->n; op++)
        if (op->kind == OP_LINEAR) {
            op->linear.product = next;
            next += op->linear.n;
        } else if (op->kind == OP_EXPERTS) {
            op->experts.up = next++;
            op->experts.down = next++;
        }
}

static int make_list(struct forward *f, struct err *err)
{
    struct builder b = {.f = f,
                        .list = &f->list,
                        .c = &f->model->config,
                        .weights = &f->model->weights,
                        .setup = {.state = config_state_shape(&f->model->config)},
                        .phase = PHASE_OTHER,
                        .err = err};
    if (f->kv)
        b.setup = *kv_setup(f->kv);
    const size_t layers = f->model->config.layers;
    begin_part(&b, layers + SPLIT_EMBED);
    f->list.embed = list_range(&b, target_embedding);
    f->list.draft_own = list_range(&b, own_embedding);
    f->list.layers = list_range(&b, layer_operations);
    begin_part(&b, layers + SPLIT_HEAD);
    f->list.head = list_range(&b, head_operations);
    f->list.token_head = list_range(&b, token_head_operations);
    f->list.final_norm = list_range(&b, final_norm);
    f->list.pooled = list_range(&b, pooled_operations);
    experts_predictions(&b);
    seal_list(&f->list);
    return b.failed ? -1 : 0;
}

int forward_list(struct op_list *list, const struct model *model, struct err *err)
{
    struct forward f = {.model = model, .pipeline = pipeline_open(model)};
    int rc = -1;
    f.attn = mem_alloc(model->config.layers, sizeof *f.attn);
    size_rope_tables(&f, &model->config);
    if (!f.attn)
        err_no_memory(err, "%zu layers", model->config.layers);
    else if (shard_open(&f.shard, model, 1, NULL, NULL, err) == 0)
        rc = make_list(&f, err);
    *list = f.list;
    adopted_release(&f.adopted);
    shard_close(&f.shard);
    free(f.attn);
    if (rc < 0)
        forward_list_close(list);
    return rc;
}

void forward_list_close(struct op_list *list)
{
    free(list->op);
    free(list->product);
    free(list->predict);
    *list = (struct op_list){0};
}

int model_counts(struct op_counts *counts, const struct model *model,
                 const struct cache_types *kv_types, struct err *err)
{
    struct op_list list;
    const struct kv_shape shape = config_kv_shape(&model->config, 1, kv_types);
    const struct state_shape state = config_state_shape(&model->config);
    *counts = (struct op_counts){0};
    if (forward_list(&list, model, err) < 0)
        return -1;
    *counts = op_list_counts(&list, model, &shape, &state);
    forward_list_close(&list);
    return 0;
}

/* ---- what the list needs ---- */

/* Allocates the buffers, whose widths are known. Draft heads' hidden states are cleared: passes may run without, to
 * measure their time. */
static int open_arena(struct forward *f, struct err *err)
{
    enum {
        LINE = 16,
        STAGGER = 5 * LINE
    }; /* rows of different buffers do not compete for the same cache sets */
    const struct backend_memory *memory = f->backend->memory;
    size_t width = 0, floats;
    for (size_t i = 0; i < BUFFER_ARENA; i++)
        width += f->list.width[i];
    if (!size_mul(width, f->max_rows, &floats) || floats > SIZE_MAX / 2 / sizeof(float))
        return err_no_memory(err, "a step of %zu tokens with activations of %zu elements", f->max_rows,
                             width);
    f->arena_bytes = (floats + BUFFER_ARENA * (LINE + STAGGER)) * sizeof(float);
    f->arena = memory->alloc(VM_MALLOC, f->arena_bytes);
    if (addr_is_null(f->arena))
        return err_no_memory(err, "a step of %zu tokens, which needs %zu bytes of activations",
                             f->max_rows, f->arena_bytes);
    struct device_addr next = f->arena;
    for (size_t i = 0; i < BUFFER_ARENA; i++) {
        const size_t bytes = round_up(f->list.width[i] * f->max_rows, LINE) * sizeof(float);
        f->buffer[i] = next;
        next = addr_add(next, bytes + STAGGER * sizeof(float));
        if (bytes && i == BUFFER_FEATURE)
            memory->copy(&(struct memory_copy){.to = f->buffer[i], .zeros = bytes}, 1);
    }
    return 0;
}

/* Widths of the inputs of products, and of those that adapters change before their activation. */
static void measure_products(const struct op_list *list, struct backend_options *o)
{
    o->max_inputs = 1;
    for (const struct op *op = list->op; op < list->op + list->n; op++) {
        if (op->kind == OP_HEADS)
            o->max_inputs = size_max(o->max_inputs, op->heads.w.matrix.in);
        if (op->kind == OP_EXPERTS)
            o->max_expert_inputs =
                size_max(o->max_expert_inputs,
                         size_max(op->experts.up->w.matrix.in, op->experts.down->w.matrix.in));
        for (size_t i = 0; op->kind == OP_LINEAR && i < op->linear.n; i++) {
            const struct op_product *p = &op->linear.product[i];
            o->max_inputs = size_max(o->max_inputs, p->w.matrix.in);
            if (p->act != EPILOGUE_NONE && p->adapter != NO_ADAPTER)
                o->max_adapted = size_max(o->max_adapted, p->w.matrix.out);
        }
    }
}

/* The operations that the side runs which is open now. */
static size_t own_ops(const struct forward *f, struct op *own)
{
    size_t n = 0;
    for (size_t i = 0; i < f->list.n; i++)
        if (f->list.op[i].on_host == f->host_runs)
            own[n++] = f->list.op[i];
    return n;
}

static int open_backend(struct forward *f, const void *own, struct err *err)
{
    const struct config *c = &f->model->config;
    AUTO(free_auto) struct op *op = mem_alloc(size_max(f->list.n, 1), sizeof *op);
    if (!op)
        return err_no_memory(err, "%zu operations", f->list.n);
    struct backend_options options = {.kv = f->kv,
                                      .max_rows = f->max_rows,
                                      .max_pairs = f->max_rows * c->moe->used,
                                      .max_experts = c->moe->experts,
                                      .max_rank = loras_max_rank(f->model->loras),
                                      .shape = f->attn,
                                      .n_shapes = f->n_attn,
                                      .own = own,
                                      .op = op,
                                      .n_ops = own_ops(f, op)};
    measure_products(&f->list, &options);
    return f->backend->open(&f->pass, &options, err);
}

/* Buffers and backend of both sides of a split model, or of the only one. Buffers that are copied between them pass through
 * memory of the process. */
static int open_sides(struct forward *f, const void *own, struct err *err)
{
    if (!f->on_host)
        return open_arena(f, err) < 0 ? -1 : open_backend(f, own, err);
    const size_t width =
        size_max(f->list.width[BUFFER_X], f->list.width[BUFFER_LAYER_INPUTS]) * sizeof *f->passed;
    if (!(f->passed = mem_alloc(f->max_rows, width)))
        return err_no_memory(err, "the hidden states of %zu tokens", f->max_rows);
    f->other.backend = backends[0];
    for (size_t i = 0; i < 2; i++) {
        if (open_arena(f, err) < 0 || open_backend(f, own, err) < 0)
            return -1;
        forward_swap(f);
    }
    return 0;
}

/* ---- positions ---- */

static int open_positions(struct forward *f, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct kv_setup *setup = kv_setup(f->kv);
    const size_t half = f->rope_tables * f->rope_half * sizeof(float);
    f->frequency = mem_zalloc(setup->n_seqs, half);
    f->cosine = mem_alloc(f->max_rows, half);
    f->sine = mem_alloc(f->max_rows, half);
    f->temperature = mem_alloc(f->max_rows, sizeof(float));
    f->slopes = mem_alloc(c->heads, sizeof(float));
    f->attn = mem_alloc(c->layers, sizeof *f->attn);
    if (!f->attn || !f->frequency || !f->cosine || !f->sine || !f->temperature || !f->slopes)
        return err_no_memory(err, "the positions of %zu tokens", f->max_rows);
    for (size_t seq = 0; seq < setup->n_seqs; seq++)
        forward_begin(f, seq, setup->shape.max_rows);
    alibi_slopes(c, f->slopes);
    return 0;
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

/* ---- all of it ---- */

int forward_open(struct forward *f, const struct model *model, const struct backend *backend,
                 const void *own, struct kv *kv, const bool *on_host, size_t max_rows, struct err *err)
{
    *f = (struct forward){.model = model,
                          .observer.memory = backend->memory,
                          .backend = backend,
                          .device = backend,
                          .on_host = on_host,
                          .kv = kv,
                          .max_rows = max_rows,
                          .adopted.memory = backend->memory};
    f->pipeline = pipeline_open(model);
    size_rope_tables(f, &model->config);
    if (shard_open(&f->shard, model, max_rows, f->backend->memory, f->buffer, err) < 0 ||
        open_positions(f, err) < 0 || forward_relay_open(f, err) < 0 ||
        lora_uses_open(&f->lora, model->loras, kv_setup(kv)->n_seqs, &f->adopted, err) < 0 ||
        make_list(f, err) < 0 || open_sides(f, own, err) < 0)
        goto fail;
    f->counts = op_list_counts(&f->list, model, &kv_setup(kv)->shape, &kv_setup(kv)->state);
    if (f->pipeline.ranks &&
        !(f->passed = mem_alloc(max_rows, config_stream_width(&model->config) * sizeof(float)))) {
        err_no_memory(err, "the hidden states of %zu tokens", max_rows);
        goto fail;
    }
    if (experts_open(&f->experts, model, f->backend, f->pass, &f->list, &f->shard, &f->observer,
                     max_rows, err) == 0)
        return 0;
fail:
    forward_close(f);
    return -1;
}

void forward_observe(struct forward *f, observe_inputs *observe, void *arg)
{
    f->observer.observe = observe;
    f->observer.arg = arg;
}

void forward_set_retrieval(struct forward *f, struct retrieval_score *score)
{
    f->backend->set_retrieval(f->pass, score);
}

void forward_close(struct forward *f)
{
    if (!f->backend) /* never opened */
        return;
    experts_close(&f->experts);
    forward_tap_close(f, &f->tap);
    for (size_t i = 0; i < 2 && f->backend; i++) {
        f->backend->close(f->pass);
        f->backend->memory->free(VM_MALLOC, f->arena, f->arena_bytes);
        forward_swap(f);
    }
    adopted_release(&f->adopted);
    observer_release(&f->observer);
    lora_uses_close(&f->lora);
    forward_relay_close(f);
    shard_close(&f->shard);
    forward_list_close(&f->list);
    free(f->attn);
    float *const host[] = {f->frequency, f->cosine, f->sine, f->temperature, f->slopes, f->passed};
    for (size_t i = 0; i < ARRAY_LEN(host); i++)
        free(host[i]);
    *f = (struct forward){0};
}
