/* Inside forward_state*.c: buffers of layers with recurrent state, and rows of a query. */
#ifndef BMC_FORWARD_STATE_PARTS_H
#define BMC_FORWARD_STATE_PARTS_H

#include "model/forward.h"

enum { STATE_MAX_TAPS = 64 };

struct forward_state {
    enum layer_kind kind;
    struct state_shape shape;
    size_t values, keys;            /* widths of this rank's values, and of its keys or queries */
    size_t first_value, first_head; /* those of other ranks that come before */
    /* Where this rank's channels of the convolution are among those of its weights. */
    struct conv_span {
        size_t own, all, n;
    } span[3];
    size_t n_spans;
    bool whole_norm; /* the norm of the output is over heads of several ranks */
    size_t width;    /* floats of struct state_inputs, per row */
    size_t padded;   /* values of all heads, each head padded to whole slabs */
    /* [max_rows][..]: */
    float *inputs;    /* width: struct state_inputs */
    float *z;         /* values: the output's gate */
    float *b;         /* hidden: the input's gate of a short convolution */
    float *convolved; /* conv: the convolution's output */
    float *y;         /* padded: the recurrence's output */
    float *out;       /* values: output of this rank's heads, or channels */
    float *out_all;   /* that of all ranks, the output projection's input; may be the same buffer */
    float *overlap;   /* outputs of products that begin with those of other ranks; NULL: one rank */
    float *gate;      /* H d: the gate of attention's output; NULL: it has none */
    float *q_gain, *k_gain;  /* [key_dim] */
    size_t *row_query;       /* [max_rows]: index of the row's query */
    struct state_view *view; /* [sequences]: of the step's queries */
    float *
        nodes; /* states of the tokens of a tree, one slab of each: [threads][nodes][key_dim][STATE_SLAB] */
    size_t n_nodes;
};

/* Where queries, keys and values are among the convolution's channels. */
struct conv_parts {
    size_t q, k, v;
};

static inline struct conv_parts conv_parts_of(enum layer_kind kind, size_t keys, size_t values)
{
    return kind == LAYER_DELTA ? (struct conv_parts){0, keys, 2 * keys}
                               : (struct conv_parts){values + keys, values, 0};
}

static inline bool is_tree(const struct attn_query *q) { return q->ancestors && q->rows > 1; }

/* Tokens of the pass on the path to a row, itself included; and the row `back` tokens before it on the
 * path, back < path_length(). */
static inline size_t path_length(const struct attn_query *q, size_t row)
{
    return is_tree(q) ? q->ancestors_at[row + 1] - q->ancestors_at[row] : row + 1;
}

static inline size_t path_row(const struct attn_query *q, size_t row, size_t back)
{
    return is_tree(q) ? q->ancestors[q->ancestors_at[row + 1] - 1 - back] : row - back;
}

struct state_job {
    struct forward *f;
    const struct step *step;
    size_t layer;
};

/* Runs the recurrence over all rows of a step; sets f->state->y. */
int state_recur(struct state_job *job, struct err *err) MUST_USE;

#endif
