/* Operations: what a forward pass consists of, and what a backend can run.
 *
 * A list of operations is made once, from the plan of a model's layers, and run in every forward pass. An operation
 * names activations by buffers of an arena, and weights by their addresses in the backend's memory, which has adopted
 * them; whatever it needs beside them are parameters, resolved when the list is made. It computes a range of rows of the batch, one per token,
 * and a row's results depend on that row alone, unless the operation says otherwise.
 *
 * What differs from pass to pass is in struct op_step: tokens, positions, sequences. */
#pragma once

#include "backend/memory.h"
#include "backend/traits.h"
#include "base/err.h"
#include "kernel/gemm.h"

struct attn_layer;
struct attn_query;

/* ---- operands ---- */

/* Columns of a buffer of the arena, from `column` on; rows are `stride` elements of 4 bytes apart. */
struct op_arg {
    size_t buffer, column, stride;
};

/* Rows [first, first + n) of the batch. */
struct row_range {
    size_t first, n;
};

/* A matrix [out][in] of weights, or a table of `out` rows, stored as struct mat says. */
struct op_matrix {
    enum dtype dtype;
    enum layout layout;
    size_t out, in, in_padded;
    struct device_addr data;
};

/* The weights of a product; `out` is 0 where there are none. */
struct op_weight {
    struct op_matrix matrix;
    struct device_addr bias; /* f32 [out], or none */
    size_t skip;             /* leading outputs that belong to another rank (shard.h) */
    const void *of;          /* what they are for the caller; not for backends */
};

/* A LoRA adapter of a matrix: y += B (A x); the scale is part of B. */
struct op_adapter {
    struct op_matrix a, b; /* [rank][in], [out][rank]; a.out is 0 if the matrix is not adapted */
};

enum { NO_ADAPTER = 0 };

/* y = act(x W + bias), with a gate act(x Wgate + gate bias) * (x W + bias), or y += x W + bias. The first w.skip
 * columns are not stored. */
struct op_product {
    struct op_weight w, gate;
    struct op_arg y;
    bool add; /* to y; else y is overwritten */
    bool f32; /* activations stay f32 whatever the precision */
    enum epilogue_act act;
    float limit, alpha, gate_scale; /* as in struct product */
    size_t adapter,
        gate_adapter;      /* index of the adapters' matrices, from 1 on; NO_ADAPTER: cannot have any */
    struct op_arg scratch; /* rows of w.matrix.out elements, if w.skip */
};

static inline bool product_has_gate(const struct op_product *product)
{
    return product->gate.matrix.out > 0;
}

enum { OP_PRODUCTS = 6 }; /* most products of an operation */

/* ---- operations ---- */

enum op_kind {
    OP_FETCH,     /* out = row of a table, of the token or its position, * factor */
    OP_FETCH_ADD, /* out = (out + row * factor) * sqrt(1/2) */
    OP_LINEAR,    /* products of `in`, which share its conversion */
    OP_HEADS,     /* out_h = in_h W_h for every head h of a stack of matrices */
    OP_NORM,      /* out = norm(in), for each of several groups of a row */
    OP_ROPE,      /* rotates heads by the position's angles, in place */
    OP_COPY,      /* out = in */
    OP_PICK,      /* out = the rows step->picked of `in` */
    OP_ADD,       /* out += in */
    OP_SCALE,     /* out *= factor, out *= by, or out *= step->temperature of the row */
    OP_CLIP,      /* out = min(max(out, -limit), limit) */
    OP_SOFTCAP,   /* out = limit * tanh(out / limit) */
    OP_GATE,      /* out = act(gate) * in */
    OP_BLEND,     /* out_i += sum of coef[i][j] in_j, for groups of a row */
    OP_MATCH,     /* out *= rms(in) / rms(out) */
    OP_SPARSIFY,  /* out = max(out - mean - limit * standard deviation, 0) */
    OP_ROUND,     /* out = round(out * s) / s, s = 127 / max |out| of the row */
    OP_APPEND,    /* K and V of all rows to the KV cache, as pending entries */
    OP_CHOOSE,    /* out = positions of each row with the largest scores of an indexer, for all rows */
    OP_ATTEND,    /* out = attention(in, KV cache), for all rows */
    OP_RECUR,     /* convolution and recurrence from and to the state in the cache, for all rows */
    OP_RECUR_END, /* norm and gate of the outputs of all ranks' heads, where OP_RECUR leaves them out */
    OP_ROUTE,     /* chosen experts and their weights, from logits */
    OP_MIX,       /* out = sum of experts' outputs */
    /* of a caller that distributes them, not of backends: */
    OP_EXPERTS, /* the chosen experts' products, see experts.h */
    OP_GATHER,  /* all-gather of the ranks' columns, see shard.h */
    OP_TAP,     /* keeps hidden states, see forward.h */
    OP_KEEP_KV  /* keeps K and V for later ranks, see forward_relay.h */
};

/* Phases of a forward pass that profiles time separately. */
enum forward_phase {
    PHASE_ATTENTION,
    PHASE_PROJECTION,
    PHASE_MLP,
    PHASE_HEAD,
    PHASE_OTHER,
    FORWARD_PHASES
};

/* In an id of a step: the token belongs to the second segment of its text. */
#define TOKEN_SECOND 0x80000000u

/* The row of a table that an op fetches: of the token, of the position + offset, or of the token's segment. */
enum op_row { ROW_TOKEN, ROW_POSITION, ROW_SEGMENT };

struct op_fetch {
    struct op_matrix table;
    enum op_row row;
    size_t offset, from; /* first column */
    float factor;        /* 0: 1 */
};

struct op_linear {
    size_t n;
    const struct op_product *product; /* [n] */
};

/* in_h begins at h * in_step, out_h at h * out_step. */
struct op_heads {
    struct op_weight w;
    size_t heads, in_step, out_step;
};

/* Group g of a row, of `width` elements, has gain and bias number first + g % gains. */
struct op_norm {
    enum norm kind;
    float eps;
    struct device_addr gain, bias; /* f32 [width] of each group; or none */
    size_t groups, gains, first;
};

/* Heads of `step` elements, whose first 2 * pairs are rotated. */
struct op_rope {
    size_t table, pairs, n;
    struct {
        struct op_arg x;
        size_t heads, step;
    } part[2];
};

/* Copies `heads` parts of `width` elements of each row; 0: one. */
struct op_copy {
    size_t heads, in_step, out_step;
};

struct op_scale {
    float factor;
    struct device_addr by; /* f32; none: factor */
    bool columns;          /* `by` has a factor per element */
    bool temperature;      /* the row's factor step->temperature */
};

struct op_gate {
    struct op_arg gate;
    size_t group; /* neighbouring elements that one gate is for */
    enum epilogue_act act;
};

enum { OP_BLENDED = 16 }; /* most groups of OP_BLEND */

/* Groups of `width` elements: out_i += sum of coef[i * in + j] in_j; `in` may be `out`. */
struct op_blend {
    struct op_arg coef;
    size_t in, out;
};

struct op_append {
    struct op_arg v;
    size_t layer;    /* of the cache */
    struct op_arg q; /* of the same rows, [heads][d]: keys are quantised to suit them */
    size_t heads;    /* 0: they are quantised alone */
};

/* The `most` positions up to a row's own with the largest sums over heads of weight * max(q . k, 0), as uint32_t, ascending;
 * of equal ones the first. With q [heads][dim] of `in`, and keys in a layer of the cache. */
struct op_choose {
    size_t layer, heads, dim, most;
    struct op_arg weights; /* [heads] */
};

struct op_attend {
    size_t layer, window, chunk, ahead, shape; /* as in struct attn_layer */
    struct device_addr sinks;                  /* f32 */
    struct op_arg chosen; /* of OP_CHOOSE, `most` or all positions up to the row's own */
    size_t most;          /* 0: all */
};

enum recur_kind { RECUR_CONV, RECUR_DELTA, RECUR_MAMBA };

/* Where queries, keys and values are among the convolution's channels. */
struct conv_columns {
    size_t q, k, v;
};

static inline struct conv_columns conv_columns_of(enum recur_kind kind, size_t keys, size_t values)
{
    return kind == RECUR_DELTA ? (struct conv_columns){0, keys, 2 * keys}
                               : (struct conv_columns){values + keys, values, 0};
}

/* Layers with recurrent state; state_ops.c has the formulas. Widths follow from the cache's state_shape. */
struct op_recur {
    enum recur_kind kind;
    size_t layer;                   /* of those with state */
    size_t values, keys;            /* widths of this rank's values, and of its keys or queries */
    size_t all_values;              /* of all ranks */
    size_t first_value, first_head; /* those of other ranks that come before */
    /* Where this rank's channels of the convolution are among those of its weights, which have `channels`. */
    struct conv_span {
        size_t own, all, n;
    } span[3];
    size_t n_spans, channels;
    struct device_addr conv, conv_bias, decay, step, skip, norm; /* f32 */
    size_t norm_width;
    float eps, scale;       /* scale: factor of the output; 0: 1 */
    enum epilogue_act gate; /* of z */
    bool norm_first;        /* before the gate, else after it */
    bool norm_later;        /* the norm is over heads of several ranks: OP_RECUR_END */
    struct op_arg inputs, z, convolved, y, all;
};

struct op_route {
    size_t experts, used;
    enum router kind;
    enum router_group group;
    size_t groups, groups_used;
    bool norm;
    float scale;
    float jitter;                         /* ROUTER_SPARSEMIXER */
    struct device_addr select_bias, gain; /* f32 [experts], or none */
    struct op_arg chosen, weight;         /* [used]: uint32_t, ascending; float */
};

/* out (+)= sum of weight * expert output of the pairs of a row, then the shared MLP's. */
struct op_mix {
    size_t used, width;      /* of an expert's output */
    size_t first, n;         /* columns that are added up */
    struct op_arg x, weight; /* x: input of the shared MLP's gate */
    bool weighted, add;
    bool shared_mlp;
    struct op_arg shared;
    struct device_addr shared_router; /* f32 [width of x]; none: the shared MLP is not gated */
    struct device_addr bias;          /* f32 [width], added to the sum; none: nothing is */
};

/* The chosen experts of a layer: up = act(in Wgate) * (in Wup), out = up Wdown, for pairs of a row and an expert.
 * Pairs are rows of these operands. */
struct op_experts {
    const struct op_product *up, *down; /* of the first of each stack */
    struct op_arg up_all;               /* input of `down`: up.y and the other ranks' columns */
    struct op_arg chosen, weight;       /* of each row */
    struct op_arg weighed; /* if the weights multiply inputs, not outputs: [pairs][width of in] */
    bool weigh_inputs;
};

struct op {
    enum op_kind kind;
    enum forward_phase phase;
    size_t layer; /* of the model */
    bool on_host; /* of a model that is split: the CPU runs it, not the device */
    struct op_arg in, out;
    size_t width; /* elements of a row, or of each group or head of it */
    union {
        struct op_fetch fetch;
        struct op_linear linear;
        struct op_heads heads;
        struct op_norm norm;
        struct op_rope rope;
        struct op_copy copy;
        struct op_scale scale;
        float limit; /* OP_CLIP, OP_SOFTCAP, OP_SPARSIFY */
        struct op_gate gate;
        struct op_blend blend;
        struct op_append append;
        struct op_choose choose;
        struct op_attend attend;
        struct op_recur recur;
        struct op_route route;
        struct op_mix mix;
        struct op_experts experts;
        struct {
            int dim;
            const void *sizes;
        } gather;
    };
};

/* True if an operation needs all rows of the batch at once. */
static inline bool op_is_whole(const struct op *op)
{
    return op->kind >= OP_APPEND && op->kind <= OP_RECUR;
}

/* ---- passes ---- */

/* Neighbouring rows whose sequences have the same LoRA adapters. */
struct op_span {
    struct row_range rows;
    const float *factor; /* [adapters]; 0: not used */
};

/* One forward pass. All pointers but `buffer` are to memory of the caller. */
struct op_step {
    const struct device_addr *buffer; /* of the arena */
    size_t rows;
    const uint32_t *token;          /* [rows] */
    const size_t *position;         /* [rows] */
    const struct attn_query *query; /* [n_queries] */
    size_t n_queries;
    bool per_sequence;                /* attention runs once per sequence instead of once for all */
    const float *cosine[2], *sine[2]; /* [rows][pairs] of each table */
    const float *temperature;         /* [rows] */
    const size_t *picked;             /* of OP_PICK, [rows] */
    const uint32_t *pair;             /* of OP_MIX, [rows][used]: number of the pair */
    size_t n_adapters;
    const struct op_adapter *const *adapter; /* [n_adapters]: matrices, by index in op_product */
    const struct op_span *span;
    size_t n_spans;
};

/* Products of experts: group i multiplies rows of `in` by the expert expert[i] of a stack, or by the matrix at
 * data[i]; the rows of its output follow those of group i - 1. */
struct op_groups {
    size_t n;
    const size_t *expert, *rows;                /* [n] */
    const struct device_addr *data, *gate_data; /* [n] matrices; NULL: in the stack */
    struct op_product product;                  /* w and gate: the first of the stack */
    size_t outputs;                             /* of an expert, of all ranks */
    struct op_arg in;
    /* [sum of rows]: rows of `in`, of which there are in_rows; NULL: consecutive ones */
    const uint32_t *in_row;
    size_t in_rows;
    /* the inputs are first multiplied by the weights weight[choice[..]] of each row; choice NULL: they are not */
    const uint32_t *choice;
    struct op_arg weight, weighed;
};
