/* Kernels: numerical routines on raw arrays, one table of functions per instruction set.
 *
 * Such a table, a kernel set, names a base set; kernels_setup() fills its empty slots from there.
 * No kernel allocates memory or fails.
 *
 * Rules for every kernel
 *   - Rows are f32 and contiguous; strides are in elements. Any size >= 1 works; no alignment is
 *     assumed unless a comment says so.
 *   - Outputs never overlap inputs unless a comment says "in place".
 *   - Within a set, the result for an activation row depends on that row alone: not on the number
 *     of rows, columns or threads. Every sum is added up in one fixed order.
 *   - Padding is either never read, or is finite and multiplied by a weight of exactly 0. */
#ifndef BMC_KERNEL_H
#define BMC_KERNEL_H

#include "quant/quant_types.h"
#include "base/err.h"
#include "kernel/peak.h"

/* Largest number of activation rows per call of panel_int8(). */
enum { INT8_MAX_ROWS = 96 };

/* Packed weights are divided into blocks of NR outputs; a panel is up to PANEL_BLOCKS of them. */
enum { NR = 16, PANEL_BLOCKS = 4, PANEL_WIDTH = NR * PANEL_BLOCKS };

/* The weights of one kernel call: consecutive blocks of a packed matrix (quant/pack.h), over a
 * range of inputs (the K dimension). */
struct panel {
    const char *w; /* the first block, from input k_begin on */
    enum dtype type;
    size_t block_bytes; /* distance between blocks */
    size_t blocks;      /* number of blocks, 1 .. PANEL_BLOCKS */
    size_t k_begin, kc; /* the range of inputs, [k_begin, k_begin + kc): multiples of 32 */
    bool accumulate;    /* y holds the sums over earlier inputs: add to them */
    bool last_k;        /* the range ends with the matrix's last input */
    /* Quantised types: the first block's scale arrays, from input 0 of the matrix. */
    const unsigned char *scales[SCALE_KINDS];
    /* Weights to prefetch, in the same layout: the caller multiplies them next; or NULL. */
    const char *next;
};

static inline size_t panel_row_bytes(const struct panel *w) { return NR * dtype_size(w->type); }

/* Activation rows quantised to int8: x = scale * q, with one scale per QK_GROUP inputs; with one
 * scale per row, its elements are equal. Padding is 0. */
struct int8_rows {
    const int8_t *q;    /* the first row, from the panel's input k_begin on */
    const float *scale; /* [kc / QK_GROUP], per row */
    const int32_t *sum; /* [kc / QK_HALF]: sum of QK_HALF neighbouring q */
    size_t row_bytes;   /* distance between rows in q, scale and sum: a multiple of 4 */
    /* The rows as interleave_int8() stores them, in tiles of `mr` rows; or NULL. */
    const char *interleaved;
    size_t mr;
};

enum { INT8_INTERLEAVED_BYTES = 52 }; /* bytes that interleave_int8() writes per QK_GROUP inputs */

enum epilogue_act { EPILOGUE_NONE, EPILOGUE_RELU, EPILOGUE_SILU, EPILOGUE_GELU, EPILOGUE_GELU_TANH };

/* Arguments of the GEMM epilogue: bias, activation, gate and residual (formula in gemm.h). */
struct epilogue {
    float *y; /* output [rows][n], from the panel's first column on */
    size_t y_stride;
    const float *sum;  /* products: [rows, or 2 * rows if split][PANEL_WIDTH] */
    const float *gate; /* products with the gate matrix, laid out like `sum`; or NULL */
    bool split;        /* an output row is the sum of two rows of `sum` (PRECISION_BF16X2) */
    size_t rows, n;
    const float *bias, *gate_bias; /* [n], or NULL: no bias */
    const float *residual;         /* laid out like y, may be y itself; or NULL */
    enum epilogue_act act;
};

enum {
    ATTEND_TILE = 16, /* KV entries of a tile, contiguous in the cache */
    ATTEND_BLOCK = 32 /* positions that kernels process at a time */
};

/* Attention of the queries of one KV head over a run of consecutive positions, which begins at a
 * multiple of ATTEND_BLOCK: one pass with a running maximum and sum (online softmax, segment paper
 * 3.2). The softmax state is read and updated, so a run may be cut at any multiple of ATTEND_BLOCK
 * without a change in the result. */
struct attend {
    size_t d; /* head size */
    enum dtype type;
    size_t row_stride; /* bytes between the KV entries of a tile */
    size_t tiles;      /* number of tiles, each of ATTEND_TILE positions */
    /* [tiles]: first KV entry of each tile. All its entries are readable and finite. */
    const char *const *k;
    const char *const *v;
    /* Row tables of tiles whose entries are scattered: those of tile t are at
     * k[t] + k_rows[t][0 .. ATTEND_TILE). A tile has both tables or none; where a table, or
     * k_rows itself, is NULL, entries are row_stride apart. */
    const ptrdiff_t *const *k_rows, *const *v_rows;
    /* The first `skippable` blocks are skipped for queries that attend to none of their
     * positions. */
    size_t skippable;
    size_t queries; /* number of queries: columns of q */
    const float *q; /* [d][q_stride]: transposed, multiplied by the softmax scale */
    size_t q_stride;
    /* Quantised types, in place of q: queries in int8, with one scale per query that is already
     * multiplied by the softmax scale. */
    const struct int8_rows *q_int8;
    /* [queries]: each attends to positions [kv_begin, kv_end) of the run; kv_begin NULL: 0. Both
     * ascend from query to query, except for queries of a draft tree, passed one row at a time. */
    const size_t *kv_begin, *kv_end;
    float softcap; /* scores s become softcap * tanh(s / softcap); 0: no soft cap */
    /* ALiBi, [queries] or NULL: adds slope * (p - position) to the score of position p, where
     * `position` is the query's, relative to the run's first. */
    const float *slope, *position;
    float *max;     /* [queries]: running maximum; -INFINITY before the first run */
    float *sum;     /* [queries][NR]: running sum in NR lanes; zeros before the first run */
    float *context; /* [queries][d]: sum of weight * V; zeros before the first run */
    float *scratch; /* attend_space(queries, d) floats, 64-byte aligned */
};

static inline size_t attend_space(size_t queries, size_t d)
{
    return ATTEND_BLOCK * (d + queries) + NR * div_up(queries, NR);
}

enum { QUANT_COLUMNS = 128 }; /* attend_quant() rounds d up to a multiple of this */

/* Number of scratch floats that attend_quant() needs. */
static inline size_t attend_quant_space(size_t queries, size_t d)
{
    const size_t groups = div_up(d, QK_GROUP), columns = round_up(d, QUANT_COLUMNS);
    const size_t prefetch = 2 * groups * (QK_GROUP / 4) * (sizeof(ptrdiff_t) / sizeof(float));
    return ATTEND_BLOCK * (groups * (QK_GROUP / 4 + 4) + columns / 2 + 2 * queries + 1) +
           7 * round_up(queries, NR) + prefetch;
}

struct kernels {
    const char *isa; /* name for BMC_ISA and --isa: an instruction set or "blas" */
    const char *summary;
    bool (*usable)(void);       /* this CPU and the operating system support it */
    int (*load)(struct err *);  /* loads the libraries it needs; NULL: needs none */
    const struct kernels *base; /* fills the slots that are NULL here */
    /* benchmark loops of its multiply-add instructions; NULL: not measured */
    const struct peak *peak[PEAK_KINDS];

    /* y[rows][PANEL_WIDTH] = x * panel^T, or += if w->accumulate; x[rows][kc] is padded with 0. */
    void (*panel_f32)(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w);

    /* panel_f32() for bf16 x and bf16 weights, summed in f32. May write and read rows up to a
     * multiple of 16. NULL: the set lacks bf16 products; weights are converted to f32. */
    void (*panel_bf16)(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w);

    /* Dequantises one block of a panel to to[kc][NR]: inputs [k, k + kc), counted from w->k_begin;
     * k and kc are multiples of QK_GROUP. */
    void (*dequantize_block)(float *to, const struct panel *w, size_t block, size_t k, size_t kc);

    /* Products like panel_f32 for int8 x and quantised weights. For every quant group (inputs that
     * share a scale) the integer products are summed exactly; then, group after group, in f32
     *   y = fma(scale * sum of (q - zero_point) * q_x, scale_x, y)
     *   y = fma(min, scale_x * sum of q_x, y)                     if the type has a min
     * With one scale per output (DTYPE_Q8_CHANNEL) y holds int32_t sums until the last range. May
     * touch up to 15 rows of x and y beyond `rows`, none beyond INT8_MAX_ROWS, and the columns of
     * blocks that the panel lacks. */
    void (*panel_int8)(float *y, const struct int8_rows *x, size_t rows, const struct panel *w);

    /* Repacks one tile of `rows` <= mr activation rows into the order in which panel_int8() reads
     * them for weights of that type. `mr` is int8_mr(type, all rows of the product), the tile
     * height: a divisor of INT8_MAX_ROWS, or 0 if this set reads rows uninterleaved. Both are NULL
     * in sets that never interleave. */
    void (*interleave_int8)(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                            enum dtype type);
    size_t (*int8_mr)(enum dtype type, size_t rows);

    /* Quantises x[n] to int8, q = round(x * (127 / max |x|)), ties to even, with scale = max |x| /
     * 127 for every `group` elements: QK_GROUP, or at least n. Writes scale[div_up(n, QK_GROUP)]
     * and sum[div_up(n, QK_HALF)] as in struct int8_rows. If not all of a group is finite its
     * scale is NaN and its q are 0; q are 0, too, where 127 / max |x| overflows. */
    void (*to_int8)(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n, size_t group);

    void (*epilogue)(const struct epilogue *epilogue);

    void (*attend)(const struct attend *attend);

    /* Attention over KV entries of DTYPE_Q8_CHANNEL or DTYPE_Q4_1 with int8 queries. Dot products
     * are integer sums over inputs that share a scale; probabilities have 15 bits. */
    void (*attend_quant)(const struct attend *attend);

    /* y = (x - mean) / sqrt(variance + eps) * gain + bias; gain, bias may be NULL; y may be x. */
    void (*layernorm)(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps);

    /* y = x / sqrt(mean of squares + eps) * gain; y may be x. */
    void (*rmsnorm)(float *y, const float *x, size_t n, const float *gain, float eps);

    /* Rotary embedding in place, for the first n_rot elements of `heads` heads of size d: rotates
     * the pair (j, j + n_rot / 2) by the angle of cosine[j] and sine[j], j < n_rot / 2. */
    void (*rope)(float *x, size_t heads, size_t d, size_t n_rot, const float *cosine,
                 const float *sine);

    /* In place: x[j] = exp(x[j] * scale + bias[j] - max) / sum; exactly 0 if bias[j] is low. */
    void (*softmax)(float *x, size_t n, float scale, const float *bias);

    /* y[j] += x[j] */
    void (*add)(float *y, const float *x, size_t n);

    /* Conversions of n elements; split() approximates x by high + low. */
    void (*to_bf16)(bf16 *y, const float *x, size_t n);
    void (*to_f32)(float *y, const bf16 *x, size_t n);
    void (*split)(bf16 *high, bf16 *low, const float *x, size_t n);
};

/* The kernel sets of this build, simplest first, ended by NULL; complete after kernels_setup(). */
extern const struct kernels *const *const kernel_sets;

/* Returns the set named `isa`, or this machine's default (rates.h) if `isa` is NULL or "". Returns
 * NULL and an error that lists the usable sets if that set is unknown or this machine cannot run
 * it. */
const struct kernels *kernels_select(const char *isa, struct err *err) MUST_USE;

/* Loads the libraries that the set needs. gemm_open() calls it; benchmarks call it before that. */
int kernels_load(const struct kernels *kernels, struct err *err) MUST_USE;

/* Fills the empty slots of all kernel sets. Call it before any other function here. */
void kernels_setup(void);

#endif
