/* Appending operations to a list. */
#include "model/op_list.h"

#include "base/mem.h"
#include "quant/pack.h"

/* ---- weights ---- */

struct device_addr vector_of(struct builder *b, const float *vector, size_t n)
{
    struct device_addr at;
    b->failed = b->failed || adopt_weights(&b->f->adopted, vector, n * sizeof *vector, &at, b->err) < 0;
    return b->failed ? (struct device_addr){0} : at;
}

struct op_matrix matrix_of(struct builder *b, const struct mat *mat)
{
    struct op_matrix to = {0};
    b->failed = b->failed || adopt_matrix(&b->f->adopted, mat, &to, b->err) < 0;
    return to;
}

struct op_weight weight_of(struct builder *b, const struct linear *w)
{
    return (struct op_weight){.matrix = matrix_of(b, &w->weight),
                              .bias = vector_of(b, w->bias, w->weight.out),
                              .skip = w->skip,
                              .of = w};
}

struct op_weight expert_weight_of(struct builder *b, const struct linear *w, size_t outputs)
{
    const struct model *model = b->f->model;
    const struct mat *mat = &w->weight;
    const size_t experts = b->c->moe->experts,
                 stride = layout_bytes(mat->layout, mat->dtype, outputs, mat->in),
                 bytes = layout_bytes(mat->layout, mat->dtype, mat->out, mat->in);
    const struct shard_range own =
        model->expert_parallel
            ? shard_experts(b->c, (size_t)model->ranks->rank, (size_t)model->ranks->size)
            : (struct shard_range){0, experts};
    const char *first = model->store || !own.n ? NULL : (const char *)mat->data + own.first * stride;
    struct op_weight to = {.matrix = {mat->dtype, mat->layout, mat->out, mat->in, mat->in_padded, {0}},
                           .bias = vector_of(b, w->bias, (experts - 1) * outputs + mat->out),
                           .skip = w->skip,
                           .of = w};
    struct device_addr at = {0};
    b->failed = b->failed ||
                adopt_weights(&b->f->adopted, first, (own.n - 1) * stride + bytes, &at, b->err) < 0;
    if (!b->failed && first)
        to.matrix.data = addr_add(at, (size_t)0 - own.first * stride);
    return to;
}

/* ---- operations ---- */

static bool grow(struct builder *b, void *array_ptr, size_t *cap, size_t used, size_t size)
{
    struct err err;
    if (!b->failed && mem_grow(array_ptr, cap, used, size, &err) < 0) {
        err_no_memory(b->err, "the operations of %zu layers", b->c->layers);
        b->failed = true;
    }
    return !b->failed;
}

void begin_part(struct builder *b, size_t part)
{
    const struct forward *f = b->f;
    b->on_host = f->on_host && f->on_host[part];
    if (f->backend)
        b->f->adopted.memory = (b->on_host ? backends[0] : f->device)->memory;
}

void begin_layer(struct builder *b, size_t layer)
{
    begin_part(b, layer);
    b->layer = layer;
    b->plan = &b->c->plan[layer];
    b->w = &b->weights->layer[layer];
    b->sizes = config_of_layer(b->c, layer, &b->other_sizes);
    b->own = shard_config(b->f->model, layer);
    shard_set_layer(&b->f->shard, layer);
}

struct op_arg buffer_of(struct builder *b, enum buffer buffer, size_t width)
{
    b->list->width[buffer] = size_max(b->list->width[buffer], width);
    return (struct op_arg){buffer, 0, width};
}

struct op_arg own_columns(const struct builder *b, struct op_arg all, enum dim dim)
{
    return columns(all, shard_local_range(&b->f->shard, dim).first);
}

struct op *append_op(struct builder *b, enum op_kind kind, struct op_arg in, struct op_arg out,
                     size_t width)
{
    struct op_list *list = b->list;
    struct op *op =
        grow(b, &list->op, &list->cap, list->n, sizeof *list->op) ? &list->op[list->n++] : &b->unused;
    *op = (struct op){.kind = kind,
                      .phase = b->phase,
                      .layer = b->layer,
                      .on_host = b->on_host,
                      .in = in,
                      .out = out,
                      .width = width};
    return op;
}

/* The gains of `n` groups of `width` elements are used. */
static struct op_norm norm_of(struct builder *b, const struct norm_weights *weights, size_t width,
                              size_t n)
{
    return (struct op_norm){.kind = (enum norm)b->c->norm,
                            .eps = (float)b->c->norm_eps,
                            .gain = vector_of(b, weights->gain, n * width),
                            .bias = vector_of(b, weights->bias, n * width),
                            .groups = 1,
                            .gains = 1};
}

struct op *op_norm(struct builder *b, struct op_arg in, struct op_arg out, size_t width,
                   const struct norm_weights *weights)
{
    struct op *op = append_op(b, OP_NORM, in, out, width);
    op->norm = norm_of(b, weights, width, 1);
    return op;
}

void op_norm_groups(struct builder *b, struct op_arg x, size_t width, size_t groups, bool own_gains,
                    size_t first, const struct norm_weights *weights)
{
    const size_t gains = own_gains ? groups : 1;
    struct op_norm norm = norm_of(b, weights, width, first + gains);
    norm.groups = groups;
    norm.gains = gains;
    norm.first = first;
    append_op(b, OP_NORM, x, x, width)->norm = norm;
}

void op_scale(struct builder *b, struct op_arg x, size_t width, double factor)
{
    if (factor != 0)
        append_op(b, OP_SCALE, x, x, width)->scale.factor = (float)factor;
}

void op_add(struct builder *b, struct op_arg to, struct op_arg x, size_t width)
{
    append_op(b, OP_ADD, x, to, width);
}

void op_copy(struct builder *b, struct op_arg to, struct op_arg from, size_t width)
{
    append_op(b, OP_COPY, from, to, width)->copy.heads = 1;
}

void op_clip(struct builder *b, struct op_arg x, size_t width, double limit)
{
    if (limit != 0)
        append_op(b, OP_CLIP, x, x, width)->limit = (float)limit;
}

void op_gate(struct builder *b, struct op_arg x, struct op_arg gate, size_t width,
             enum epilogue_act act)
{
    append_op(b, OP_GATE, x, x, width)->gate = (struct op_gate){gate, 1, act};
}

void op_gate_groups(struct builder *b, struct op_arg x, struct op_arg gate, size_t width, size_t group)
{
    append_op(b, OP_GATE, x, x, width)->gate = (struct op_gate){gate, group, EPILOGUE_SIGMOID};
}

struct op *op_fetch(struct builder *b, struct op_arg to, const struct mat *table, double factor)
{
    struct op *op = append_op(b, OP_FETCH, to, to, table->in);
    op->fetch = (struct op_fetch){.table = matrix_of(b, table), .factor = (float)factor};
    return op;
}

void append_product(struct builder *b, const struct op_product *product)
{
    struct op_list *list = b->list;
    if (grow(b, &list->product, &list->product_cap, list->n_products, sizeof *product))
        list->product[list->n_products++] = *product;
}

void op_linear(struct builder *b, struct op_arg x, const struct op_product *product, size_t n)
{
    struct op *op = append_op(b, OP_LINEAR, x, product->y, product->w.matrix.in);
    size_t skipped = 0;
    for (size_t i = 0; i < n; i++)
        skipped += product[i].w.skip ? product[i].w.matrix.out : 0;
    struct op_arg scratch = buffer_of(b, BUFFER_SCRATCH, skipped);
    for (size_t i = 0; i < n; i++) {
        struct op_product p = product[i];
        if (!p.w.matrix.out)
            continue;
        p.scratch = scratch;
        scratch = columns(scratch, p.w.skip ? p.w.matrix.out : 0);
        append_product(b, &p);
        op->linear.n++;
    }
}

void op_gather(struct builder *b, enum dim dim, struct op_arg own, struct op_arg all)
{
    if (!b->f->shard.ranks)
        return;
    struct op *op = append_op(b, OP_GATHER, own, all, config_dim(b->f->shard.config, dim));
    op->gather.dim = (int)dim;
    op->gather.sizes = b->f->shard.config;
}

static enum epilogue_act activation_of(const struct config *config)
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
    return act[config->mlp->activation];
}

struct op_product activated(const struct builder *b, double limit)
{
    return (struct op_product){
        .act = activation_of(b->c), .limit = (float)limit, .alpha = (float)b->c->mlp->alpha};
}

/* ---- sublayers ---- */

struct op_arg sublayer_input(struct builder *b, enum buffer normed)
{
    const int place = b->c->norm_place;
    return hidden_of(b, place == NORM_BEFORE || place == NORM_AROUND ? normed : BUFFER_X);
}

struct op_arg pre_norm(struct builder *b, enum buffer normed, const struct norm_weights *weights)
{
    const struct op_arg h = sublayer_input(b, normed);
    if (h.buffer != BUFFER_X)
        op_norm(b, hidden_of(b, BUFFER_X), h, b->c->hidden, weights);
    return h;
}

struct op_arg output_of(struct builder *b)
{
    return hidden_of(b, config_changes_output(b->c) ? BUFFER_BRANCH : BUFFER_X);
}

void output_projection(struct builder *b, struct op_arg y, const struct linear *w, size_t adapter)
{
    const struct op_arg all = output_of(b);
    const struct op_product product = {.w = weight_of(b, w),
                                       .y = own_columns(b, all, DIM_HIDDEN),
                                       .add = all.buffer == BUFFER_X,
                                       .adapter = adapter};
    op_linear(b, y, &product, 1);
    op_gather(b, DIM_HIDDEN, product.y, all);
}
