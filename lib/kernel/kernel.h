/* Arithmetic on raw rows: the contract of a kernel set, and the table that picks one.
 *
 * A set names the set that it is built on and overrides what it does better; kernels_setup() fills the
 * rest of its slots in once. Nothing here allocates while running, or fails.
 *
 * Rules for every kernel
 *   - Rows are f32 and contiguous; strides are given in elements. Any size >= 1 works; no alignment is
 *     assumed unless a comment says so.
 *   - Outputs never overlap inputs unless a comment says "in place".
 *   - Within a set, what a row comes to depends on that row alone: not on how many rows, columns or
 *     threads take part. Every sum has one order, the same for one row and for many.
 *   - A padded row is either never read, or is finite and meets a weight that is exactly 0. */
#ifndef BMC_KERNEL_H
#define BMC_KERNEL_H

#include "base/few_bits.h"
#include "base/err.h"
#include "kernel/peak.h"

/* Rows of int8 are multiplied at most INT8_MOST_ROWS at a time. */
enum { INT8_MOST_ROWS = 96 };

/* Packed weights come in blocks of LANES outputs; a panel is up to PANEL_BLOCKS of them. */
enum { LANES = 16, PANEL_BLOCKS = 4, PANEL_WIDTH = LANES * PANEL_BLOCKS };

/* Some consecutive blocks of a packed matrix (base/pack.h), and a range of their inputs. */
struct panel {
    const char *w; /* at the first input of the range */
    enum dtype type;
    size_t block_bytes; /* from block to block */
    size_t blocks;      /* 1 .. PANEL_BLOCKS */
    size_t from, depth; /* the range of inputs: multiples of 32 */
    bool onward;        /* y holds the sums of the inputs before: they go on */
    bool last;          /* no inputs follow */
    /* Few bits: the first block's planes, at its first input; of blocks like w. */
    const unsigned char *plane[FEW_PLANES];
    const char
        *next; /* what will be multiplied next, laid out like this: to be fetched meanwhile; or NULL */
};

static inline size_t panel_row_bytes(const struct panel *w) { return LANES * dtype_size(w->type); }

/* Rows in int8: x = scale * code; every FEW_GROUP neighbours have one scale, or all of a row the same. Padding is 0. */
struct int8_rows {
    const int8_t *code; /* at the first input of a panel's range */
    const float *scale; /* [depth / FEW_GROUP] */
    const int32_t *sum; /* [depth / FEW_HALF]: of the codes of every FEW_HALF inputs */
    size_t row_bytes;   /* from row to row, of each of the three: a multiple of 4 */
    const char
        *woven; /* as weave_int8() makes them of a panel's range, in tiles of `tall` rows; or NULL */
    size_t tall;
};

enum { INT8_WOVEN_BYTES = 52 }; /* of each row's FEW_GROUP inputs */

enum finish_act { FINISH_NONE, FINISH_RELU, FINISH_SILU, FINISH_GELU, FINISH_GELU_TANH };

/* What happens to the sums of a product before they are stored (gemm.h says it in one line). */
struct finish {
    float *y; /* [rows][n], at the panel's first column */
    size_t y_stride;
    const float *sum;  /* [rows or 2 * rows][PANEL_WIDTH] */
    const float *gate; /* sums of the gate's product, like `sum`, or NULL */
    bool split;        /* every row is the sum of two of `sum`'s */
    size_t rows, n;
    const float *bias, *gate_bias; /* [n] or NULL */
    const float *plus;             /* like y, may be y; or NULL */
    enum finish_act act;
};

enum {
    ATTEND_TILE = 16, /* rows that lie together in storage */
    ATTEND_BLOCK = 32 /* positions between two updates of the running maximum */
};

/* Queries of one KV head against consecutive positions, beginning at a multiple of ATTEND_BLOCK: one pass
 * with a running maximum and sum ("online softmax", as segment paper 3.2 has it). The state goes
 * in and out, so a run may be cut at any multiple of ATTEND_BLOCK without a change in the result. */
struct attend {
    size_t d;
    enum dtype type;
    size_t row_stride;    /* bytes from row to row of a tile */
    size_t tiles;         /* of ATTEND_TILE positions */
    const char *const *k; /* [tiles] first row of each tile; all its rows can be read and are finite */
    const char *const *v; /* the same */
    /* Row tables, for tiles whose rows are scattered: rows of tile t are at k[t] + k_rows[t][0 .. ATTEND_TILE). A tile has
     * both tables or none; with NULL, for one tile or for all, rows are row_stride apart. */
    const ptrdiff_t *const *k_rows, *const *v_rows;
    size_t must;    /* blocks from this one on are multiplied even if no query sees them */
    size_t queries; /* rows of q */
    const float *q; /* [d][q_stride]: the queries are columns; scaled already */
    size_t q_stride;
    /* Few bits: in place of q, the queries in int8, one scale for each, which has the scale of the scores in it. */
    const struct int8_rows *q_int8;
    /* [queries]: a query sees positions [from, seen) of the run. Neither falls from one query to the next,
     * but for those of a tree, which come one row at a time. from may be NULL: all begin at 0. */
    const size_t *from, *seen;
    float softcap; /* scores s become softcap * tanh(s / softcap); 0: they stay */
    /* [queries] or NULL: slope * (position - own) joins the score, positions counted as the run's: `own` is
     * the query's. */
    const float *slope, *own;
    float *max;     /* [queries]; -INFINITY before the first run */
    float *sum;     /* [queries][LANES]; zeros before the first run */
    float *context; /* [queries][d]; zeros before the first run */
    float *space;   /* attend_space(queries, d) floats, 64-byte aligned */
};

static inline size_t attend_space(size_t queries, size_t d)
{
    return ATTEND_BLOCK * (d + queries) + LANES * div_up(queries, LANES);
}

/* The same for rows of few bits, whose columns fill whole registers. */
enum { FEW_COLUMNS = 128 };
static inline size_t attend_few_space(size_t queries, size_t d)
{
    const size_t groups = div_up(d, FEW_GROUP), columns = round_up(d, FEW_COLUMNS);
    const size_t prefetch = 2 * groups * (FEW_GROUP / 4) * (sizeof(ptrdiff_t) / sizeof(float));
    return ATTEND_BLOCK * (groups * (FEW_GROUP / 4 + 4) + columns / 2 + 2 * queries + 1) +
           7 * round_up(queries, LANES) + prefetch;
}

struct kernels {
    const char *isa; /* what BMC_ISA and --isa call it */
    const char *summary;
    bool (*usable)(void);       /* this CPU can run it, and the kernel lets us */
    int (*load)(struct err *);  /* gets what it needs from outside, or NULL; any number of calls */
    const struct kernels *base; /* where empty slots are taken from */
    const struct peak *
        peak[PEAK_KINDS]; /* throughput of the instructions that its products use; NULL: not measured */

    /* y[rows][PANEL_WIDTH] = x * panel^T, or += when it goes onward. x is f32 [rows][depth], zero where the
     * weights are padded. */
    void (*panel_f32)(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w);

    /* The same for x in bf16 and bf16 weights, summed in f32. May write and read rows up to the next
     * multiple of 16. Sets without one leave it empty all the way down: products then widen. */
    void (*panel_bf16)(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w);

    /* to[depth][LANES]: inputs k .. k + depth - 1 of a block of few bits, counted from the range's first; multiples of
     * FEW_GROUP. */
    void (*widen_few)(float *to, const struct panel *w, size_t block, size_t k, size_t depth);

    /* Products like panel_f32 for x in int8 and weights of few bits. The products of codes are summed as whole numbers for every group
     * of inputs that shares a step; then, group after group,
     *   y = fma(step * sum of (code - zero) * x, scale, y)
     *   y = fma(base, scale * sum of x, y)                                      where the type has a base
     * in f32. With one step for a whole row (q8c) y holds whole numbers, as int32_t, until the last range. May read
     * and write fewer than 16 rows behind the last, none behind INT8_MOST_ROWS, and the columns of blocks that are not there. */
    void (*panel_int8)(float *y, const struct int8_rows *x, size_t rows, const struct panel *w);

    /* Rows are brought into another order first, in which products with codes of that type read them from end to end: with each
     * call a tile of so many as int8_tall() says for all of them, of which there are `rows`: a divisor of INT8_MOST_ROWS, or 0,
     * and they stay as they are. Sets without it leave both empty all the way down. */
    void (*weave_int8)(char *to, const struct int8_rows *x, size_t rows, size_t tall, size_t depth,
                       enum dtype type);
    size_t (*int8_tall)(enum dtype type, size_t rows);

    /* n elements to int8 codes, nearest, ties to even; scale[div_up(n, group)] and sum[div_up(n, FEW_HALF)] as in struct
     * int8_rows; group is FEW_GROUP or at least n. Codes are x * (127 / most), scales most / 127, of the
     * largest |x|. A scale is NaN where not all its x are finite; codes are 0 then, and where 127 / most is infinite. */
    void (*to_int8)(int8_t *code, float *scale, int32_t *sum, const float *x, size_t n, size_t group);

    void (*finish)(const struct finish *finish);

    void (*attend)(const struct attend *attend);

    /* The same over rows of DTYPE_Q8C or DTYPE_Q4, and queries in int8: products of codes are summed as whole numbers, over a
     * row or a group of it that shares a scale; those of values too, with weights as whole numbers of 15 bits. */
    void (*attend_few)(const struct attend *attend);

    /* y = (x - mean) / sqrt(variance + eps) * gain + bias; gain and bias may be NULL; y may be x. */
    void (*layernorm)(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps);

    /* y = x / sqrt(mean of squares + eps) * gain; y may be x. */
    void (*rmsnorm)(float *y, const float *x, size_t n, const float *gain, float eps);

    /* Rotates the first `turned` elements of `heads` heads of size d in place: element j with element
     * j + turned/2 by the angle whose cosine and sine are cosine[j], sine[j], j < turned/2. */
    void (*rope)(float *x, size_t heads, size_t d, size_t turned, const float *cosine,
                 const float *sine);

    /* In place: x[j] = exp(x[j] * scale + bias[j] - max) / sum. With bias[j] far below the rest, x[j]
     * is exactly 0. */
    void (*softmax)(float *x, size_t n, float scale, const float *bias);

    /* y[j] += x[j] */
    void (*add)(float *y, const float *x, size_t n);

    /* Conversions of n elements. split: x is nearly high + low. */
    void (*to_bf16)(bf16 *y, const float *x, size_t n);
    void (*to_f32)(float *y, const bf16 *x, size_t n);
    void (*split)(bf16 *high, bf16 *low, const float *x, size_t n);
};

/* The sets of this build, plainest first, ended by NULL, complete after kernels_setup(). To add one: a
 * file with its table, a line in kernels.c. */
extern const struct kernels *const *const kernel_sets;

/* The set called `isa`, or the default of this machine (rates.h) when it is NULL or "". An unknown or unusable name is an
 * error that lists the usable ones. */
const struct kernels *kernels_select(const char *isa, struct err *err) MUST_USE;

/* Gets what the set needs from outside. Opening products does so; programs that measure first call it before. */
int kernels_load(const struct kernels *kernels, struct err *err) MUST_USE;

/* Before anything else here: completes the sets, and finds out how memory is best asked. */
void kernels_setup(void);

#endif
