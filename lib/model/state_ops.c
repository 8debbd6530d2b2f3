/* Layers with recurrent state: short convolutions, Gated DeltaNet and Mamba-2.
 *
 * All are a causal convolution over the channels of projections of the input h; then, except for short
 * convolutions, a recurrence per head, whose state S [key_dim][value_dim] each token updates; then a gate
 * and an output projection:
 *
 *   conv    x += (z * conv(b * v)) Wout                                     b, z, v = h Wb, h Wz, h Wv
 *   delta   q, k, v = silu(conv(h Wq, h Wk, h Wv)); q, k normalised         z, a, b = h Wz, h Wa, h Wb
 *           S = decay S + k (sigmoid(b) (v - decay S^T k))^T                decay = exp(-rate softplus(a + step))
 *           x += (norm(S^T q) * silu(z)) Wout                             (Kimi Delta Attention: decay per row of S,
 *                                                                           sigmoid(z); z, a = h Wzin Wz, h Wain Wa)
 *   mamba   v, k, q = silu(conv(h Wv, h Wk, h Wq))                          z, a = h Wz, h Wa
 *           S = decay S + k (d v)^T                                         d = softplus(a + step), decay = exp(-rate d)
 *           x += norm((S^T q + skip v) * silu(z)) Wout
 *                                                                           (or norm(S^T q + skip v) * silu(z))
 *
 * Convolution and recurrence are one operation, OP_RECUR. */
#include "kv/kv.h"
#include "model/op_list.h"

static enum recur_kind recur_kind_of(const struct builder *b)
{
    return b->plan->kind == LAYER_CONV    ? RECUR_CONV
           : b->plan->kind == LAYER_DELTA ? RECUR_DELTA
                                          : RECUR_MAMBA;
}

/* Where this rank's heads, or channels, are among all. */
struct own_state {
    struct state_shape shape;
    size_t values, keys, first_value, first_key;
    struct op_arg inputs, z, out, all;
    struct state_columns at;
    struct conv_columns conv;
};

static struct own_state own_state_of(struct builder *b)
{
    const struct shard_range values = shard_local_range(&b->f->shard, DIM_STATE_VALUES),
                             keys = shard_local_range(&b->f->shard, DIM_STATE_KEYS);
    struct own_state s = {.shape = b->setup.state,
                          .values = values.n,
                          .keys = b->c->recurrent->heads ? keys.n : 0,
                          .first_value = values.first,
                          .first_key = keys.first};
    s.at = state_columns(&s.shape);
    s.conv = conv_columns_of(recur_kind_of(b), s.keys, s.values);
    s.inputs = buffer_of(b, BUFFER_STATE_INPUTS, state_input_floats(&s.shape));
    s.z = buffer_of(b, BUFFER_STATE_Z, s.values);
    s.all = buffer_of(b, BUFFER_STATE_ALL, config_state_values(b->c));
    s.out = b->f->shard.ranks ? buffer_of(b, BUFFER_STATE_OUT, s.values) : s.all;
    return s;
}

/* Factors of what Mamba-2 projects. */
static void scale_projected(struct builder *b, const struct own_state *s)
{
    const struct config *c = b->c;
    const struct {
        struct op_arg y;
        size_t n;
    } part[] = {{s->z, s->values},
                {columns(s->inputs, s->conv.v), s->values},
                {columns(s->inputs, s->conv.k), s->keys},
                {columns(s->inputs, s->conv.q), s->keys},
                {columns(s->inputs, s->at.decay), s->shape.heads}};
    for (size_t i = 0; (c->recurrent->in_scale != 0 || c->recurrent->scales.n) && i < ARRAY_LEN(part);
         i++)
        op_scale(b, part[i].y, part[i].n,
                 (c->recurrent->in_scale != 0 ? c->recurrent->in_scale : 1) *
                     (c->recurrent->scales.n ? c->recurrent->scales.x[i] : 1));
}

void state_projection(struct builder *b, struct op_arg h)
{
    const struct own_state s = own_state_of(b);
    const enum recur_kind kind = recur_kind_of(b);
    const struct op_arg gate = buffer_of(b, BUFFER_STATE_B, kind == RECUR_CONV ? s.values : 0);
    const struct op_product conv[] = {{.w = weight_of(b, &b->w->state_v), .y = s.inputs},
                                      {.w = weight_of(b, &b->w->state_z), .y = s.z},
                                      {.w = weight_of(b, &b->w->state_b), .y = gate}};
    const size_t rank = b->c->recurrent->rank;
    const struct op_arg low = buffer_of(b, BUFFER_STATE_LOW, 2 * rank);
    const struct op_product z = {.w = weight_of(b, &b->w->state_z), .y = s.z};
    const struct op_product a = {.w = weight_of(b, &b->w->state_a), .y = columns(s.inputs, s.at.decay)};
    const struct op_product heads[] = {
        {.w = weight_of(b, &b->w->state_v), .y = columns(s.inputs, s.conv.v)},
        rank ? (struct op_product){.w = weight_of(b, &b->w->state_z_in), .y = low} : z,
        {.w = weight_of(b, &b->w->state_q), .y = columns(s.inputs, s.conv.q)},
        {.w = weight_of(b, &b->w->state_k), .y = columns(s.inputs, s.conv.k)},
        rank ? (struct op_product){.w = weight_of(b, &b->w->state_a_in), .y = columns(low, rank)} : a,
        {.w = weight_of(b, &b->w->state_b), .y = columns(s.inputs, s.at.beta)}};
    if (kind == RECUR_CONV)
        op_linear(b, h, conv, ARRAY_LEN(conv));
    else
        op_linear(b, h, heads, ARRAY_LEN(heads) - (kind == RECUR_MAMBA));
    if (rank) {
        op_linear(b, low, &z, 1);
        op_linear(b, columns(low, rank), &a, 1);
    }
    scale_projected(b, &s);
    if (kind == RECUR_CONV)
        op_gate(b, s.inputs, gate, s.values, EPILOGUE_NONE);
}

/* The channels of the convolution that this rank has, among those of its weights. */
static void find_channels(struct builder *b, const struct own_state *s, struct op_recur *r)
{
    const struct config *c = b->c;
    const struct conv_columns all =
        conv_columns_of(r->kind, config_state_keys(c), config_state_values(c));
    r->channels = config_conv_width(c);
    if (!b->f->shard.ranks) {
        r->span[r->n_spans++] = (struct conv_span){0, 0, s->shape.conv};
        return;
    }
    r->span[r->n_spans++] = (struct conv_span){s->conv.v, all.v + s->first_value, s->values};
    if (s->keys) {
        r->span[r->n_spans++] = (struct conv_span){s->conv.q, all.q + s->first_key, s->keys};
        r->span[r->n_spans++] = (struct conv_span){s->conv.k, all.k + s->first_key, s->keys};
    }
}

void state_recurrence(struct builder *b)
{
    const struct config *c = b->c;
    const struct own_state s = own_state_of(b);
    const struct layer *w = b->w;
    const enum recur_kind kind = recur_kind_of(b);
    const size_t first = b->f->pipeline.first_layer;
    struct op_recur r = {
        .kind = kind,
        .layer = config_state_layers(c, first, b->layer - first),
        .values = s.values,
        .keys = s.keys,
        .all_values = config_state_values(c),
        .first_value = s.first_value,
        .first_head = c->recurrent->heads ? s.first_value / c->recurrent->value_dim : 0,
        .conv = vector_of(b, w->conv, c->recurrent->conv_kernel * config_conv_width(c)),
        .conv_bias = vector_of(b, w->conv_bias, config_conv_width(c)),
        .decay = vector_of(b, w->decay, c->recurrent->heads),
        .step = vector_of(b, w->step, config_dim(c, DIM_STATE_DECAYS)),
        .skip = vector_of(b, w->skip, c->recurrent->heads),
        .norm = vector_of(b, w->state_norm,
                          kind == RECUR_DELTA ? c->recurrent->value_dim : config_state_values(c)),
        .norm_width = kind == RECUR_MAMBA ? config_state_values(c) / c->recurrent->key_heads
                                          : c->recurrent->value_dim,
        .eps = (float)c->norm_eps,
        .scale = (float)c->recurrent->out_scale,
        .gate = c->recurrent->gate == STATE_GATE_SIGMOID ? EPILOGUE_SIGMOID : EPILOGUE_SILU,
        .norm_first = kind == RECUR_DELTA || c->recurrent->norm_first,
        .norm_later =
            b->f->shard.ranks && kind == RECUR_MAMBA && c->recurrent->norm && !config_splits_keys(c),
        .inputs = s.inputs,
        .z = s.z,
        .convolved = buffer_of(b, BUFFER_STATE_CONVOLVED, s.shape.conv),
        .y = buffer_of(b, BUFFER_STATE_Y, s.shape.heads * state_slabs(&s.shape) * STATE_SLAB),
        .all = s.all,
    };
    find_channels(b, &s, &r);
    b->phase = PHASE_ATTENTION;
    append_op(b, OP_RECUR, s.inputs, s.out, 0)->recur = r;
    if (r.norm_later) {
        op_gather(b, DIM_STATE_VALUES, s.out, s.all);
        append_op(b, OP_RECUR_END, s.all, s.out, 0)->recur = r;
    }
}

void state_output(struct builder *b)
{
    const struct own_state s = own_state_of(b);
    b->phase = PHASE_ATTENTION;
    op_gather(b, DIM_STATE_VALUES, s.out, s.all);
    b->phase = PHASE_PROJECTION;
    output_projection(b, s.all, &b->w->state_out, NO_ADAPTER);
}
