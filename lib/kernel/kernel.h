/* Kernels: numerical routines on raw arrays, one table of functions per instruction set.
 *
 * Such a table, a kernel set, names a base set; kernels_setup() fills its empty slots from there.
 * No kernel allocates memory or fails.
 *
 * Rules for every kernel
 *   - Rows are f32 and contiguous; strides are in elements. Any size >= 1 works; no alignment is
 *     assumed unless a comment says so.
 *   - Outputs never overlap inputs unless a comment says "in place".
 *   - The result for an activation row depends on that row alone: not on the number of rows, columns or
 *     threads.
 *   - All sets compute the same bits, except `blas`, panel_bf16() and attend_bf16(); of NaN, only which elements it is.
 *     So formulas here are meant literally. Every operation rounds to f32, to nearest; fma() alone rounds once.
 *       dot products of f32   fma() over the inputs in order, in one accumulator; of integers exact
 *       sums of a row         sum16: 16 partial sums, element j in sum j % 16; then sums 8 apart are added,
 *                             4, 2 and 1 apart; then elements behind the last whole 16, in order
 *       exp, tanh, erf        the polynomials of template/vec.h; sqrt and quotients are correctly rounded
 *     Orders that belong to one kernel are in its template.
 *   - Padding is either never read, or is finite and multiplied by a weight of exactly 0. */
#pragma once

#include "quant/quant_types.h"
#include "base/err.h"
#include "kernel/peak.h"

/* Largest number of activation rows per call of panel_int8(). */
enum { INT8_MAX_ROWS = 192 };

/* Packed weights are divided into blocks of NR outputs; a panel is 1 to PANEL_BLOCKS blocks. */
enum { NR = 16, PANEL_BLOCKS = 4, PANEL_WIDTH = NR * PANEL_BLOCKS };

enum { PANEL_PADDED_ROWS = 16 }; /* panel_bf16() may read and write rows up to a multiple of this */

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
    /* Quantised types: scale arrays of the first block, which begin at input 0 of the matrix. */
    const unsigned char *scales[SCALE_KINDS];
    /* Weights that the next call will multiply, in the same layout, to be prefetched; or NULL. */
    const char *next;
};

static inline size_t panel_row_bytes(const struct panel *w) { return NR * dtype_size(w->type); }

/* Activation rows quantised to int8: x = scale * q, with one scale per QK_GROUP inputs. Rows that
 * were quantised with a single scale repeat it in every element of `scale`. Padding is 0. */
struct int8_rows {
    const int8_t *q;    /* quantised values of the first row, from the panel's input k_begin on */
    const float *scale; /* [kc / QK_GROUP], per row */
    const int32_t *sum; /* [kc / QK_HALF]: sums of QK_HALF neighbouring elements of q */
    size_t row_bytes;   /* distance between rows in q, scale and sum: a multiple of 4 */
    /* The rows as interleave_int8() stores them, in tiles of `mr` rows; or NULL. */
    const char *interleaved;
    size_t mr;
};

/* Bytes that interleave_int8() writes for QK_GROUP inputs of one activation row. */
enum { INT8_INTERLEAVED_BYTES = 52 };

enum epilogue_act {
    EPILOGUE_NONE,
    EPILOGUE_RELU,
    EPILOGUE_SILU,
    EPILOGUE_GELU,
    EPILOGUE_GELU_TANH,
    EPILOGUE_SIGMOID,
    EPILOGUE_RELU2,
    EPILOGUE_QUICK_GELU,
    /* gates only: with g = min(gate, limit) and u = sum clamped to +-limit,
     * (u + 1) * g * sigmoid(alpha * g) */
    EPILOGUE_CLAMPED_SWIGLU
};

/* Arguments of the GEMM epilogue: bias, activation, gate and residual (formula in gemm.h). */
struct epilogue {
    float *y; /* output [rows][n], from the panel's first column on */
    size_t y_stride;
    const float *sum;  /* x W^T without bias: [rows, or 2 * rows if split][PANEL_WIDTH] */
    const float *gate; /* products with the gate matrix, laid out like `sum`; or NULL */
    bool split;        /* a row of y is the sum of two rows of `sum`: PRECISION_BF16X2 */
    size_t rows, n;
    const float *bias, *gate_bias; /* [n], or NULL: no bias */
    const float *residual;         /* laid out like y, may be y itself; or NULL */
    enum epilogue_act act;
    float limit, alpha; /* of EPILOGUE_CLAMPED_SWIGLU */
    float gate_scale;   /* factor of gates before other activations; 0: none */
};

enum {
    ATTEND_TILE = 16,  /* KV entries of a tile, contiguous in the cache */
    ATTEND_BLOCK = 32, /* positions that attend() processes at a time */
    QUANT_BLOCK =
        64 /* the same for attend_quant(); runs of positions of any type are divided at its multiples */
};

/* Arguments of attention kernels. The queries of one KV head attend to a run of consecutive
 * positions that begins at a multiple of QUANT_BLOCK, in one pass with a running maximum and sum
 * (online softmax, segment paper 3.2). A call continues from the softmax state of the previous one,
 * so splitting a run at any multiple of QUANT_BLOCK does not change the result. */
struct attend {
    size_t d;   /* head size: elements of a query and of a KV entry, K or V */
    size_t d_v; /* leading elements of V that are read: the size of a context; <= d */
    enum dtype k_type, v_type;
    size_t k_stride, v_stride; /* bytes between the KV entries of a tile, of K and of V */
    size_t tiles;              /* number of tiles, each of ATTEND_TILE positions */
    /* [tiles]: each tile's first KV entry. All entries of a tile are readable and finite. */
    const char *const *k;
    const char *const *v;
    /* Byte offsets of the KV entries of scattered tiles: entry i of tile t has its K at
     * k[t] + k_rows[t][i]. A tile has offsets for both K and V or neither; where they, or k_rows
     * itself, are NULL, entries are k_stride or v_stride apart. */
    const ptrdiff_t *const *k_rows, *const *v_rows;
    /* Blocks that begin at one of the first `skippable` positions are skipped for queries that
     * attend to none of their positions. */
    size_t skippable;
    size_t queries; /* number of queries: columns of q */
    const float *q; /* [d][q_stride]: the queries, transposed, times the softmax scale */
    size_t q_stride;
    /* attend_bf16(), in place of q: [queries][q_stride], with elements of 0 from d up to a multiple of 32, and
     * PANEL_PADDED_ROWS readable rows more */
    const bf16 *q_bf16;
    bool rounded; /* attend(): probabilities are rounded to bf16, for queries that are */
    /* Quantised types, in place of q: queries in int8, with one scale per query that is already
     * multiplied by the softmax scale. */
    const struct int8_rows *q_int8;
    /* [queries]: a query attends to positions [kv_begin, kv_end) of the run; kv_begin NULL: all
     * begin at 0. Both arrays ascend, except for tokens of a draft tree, which are passed one per
     * call. */
    const size_t *kv_begin, *kv_end;
    float softcap; /* scores s become softcap * tanh(s / softcap); 0: no soft cap */
    /* ALiBi, [queries] or NULL: subtracts slope * |p - position| from the score of position p, where
     * `position` is the query's; both are relative to the first position of the run. */
    const float *slope, *position;
    float *max;     /* [queries]: running maximum of scores; -INFINITY before the first call */
    float *sum;     /* [queries][NR]: running sum in NR lanes; zeros before the first call */
    float *context; /* [queries][d_v]: sum of probability * V; zeros before the first call */
    float *scratch; /* attend_space() or attend_quant_space() floats, 64-byte aligned */
};

static inline size_t attend_space(size_t queries, size_t d)
{
    return ATTEND_BLOCK * (d + queries) + NR * div_up(queries, NR);
}

/* The same for attend_bf16(). */
static inline size_t attend_bf16_space(size_t queries, size_t d)
{
    const size_t rows = queries + PANEL_PADDED_ROWS;
    return QUANT_BLOCK / 2 * (round_up(d, 32) + PANEL_WIDTH) +
           rows * (QUANT_BLOCK + QUANT_BLOCK / 2 + round_up(d, PANEL_WIDTH));
}

enum { QUANT_COLUMNS = 128 }; /* attend_quant() rounds d up to a multiple of this */

/* Number of floats that attend_quant() needs in attend.scratch. */
static inline size_t attend_quant_space(size_t queries, size_t d)
{
    const size_t groups = div_up(d, QK_GROUP), columns = round_up(d, QUANT_COLUMNS);
    const size_t tiles = QUANT_BLOCK / ATTEND_TILE;
    const size_t prefetch = tiles * groups * (QK_GROUP / 4) * (sizeof(ptrdiff_t) / sizeof(float));
    return QUANT_BLOCK * (groups * (2 * (QK_GROUP / 4) + 4) + columns / 2 + 2 * queries + 1) +
           8 * round_up(queries, NR) + prefetch + round_up(queries, 8) * round_up(d, 64) / 4;
}

enum { RECUR_WIDTH = 32 }; /* columns of S that recur() updates */

/* One token's step of the recurrence of one head, for RECUR_WIDTH columns of its state S:
 *
 *     d = v, or by the delta rule beta * (v - (decay * S)^T k)
 *     S = decay * S + k d^T
 *     y = S^T q
 *
 * where decay is a number, or has one for each row of S. */
struct recur {
    float *state;        /* [key_dim][RECUR_WIDTH]: S after the token */
    const float *before; /* S before it; may be `state` */
    size_t key_dim;
    const float *k, *q;  /* [key_dim]; q may be NULL: no y */
    const float *v;      /* [RECUR_WIDTH] */
    const float *decays; /* [key_dim]; NULL: the same for all rows: */
    float decay, beta;
    bool delta;
    float *y; /* [RECUR_WIDTH] */
};

struct kernels {
    const char *isa; /* name for BMC_ISA and --isa: an instruction set or "blas" */
    const char *summary;
    bool (*usable)(void);       /* this CPU and the operating system support it */
    int (*load)(struct err *);  /* loads the libraries it needs; NULL: needs none */
    const struct kernels *base; /* fills the slots that are NULL here */
    bool foreign_sums;          /* a library adds, in an order that may depend on the number of rows */

    /* Slots: from here on all members are pointers. */

    /* benchmark loops of the set's multiply-add instructions; NULL: not measured */
    const struct peak *peak[PEAK_KINDS];

    /* y[rows][PANEL_WIDTH] = x * panel^T, or += if w->accumulate; x[rows][kc] is padded with 0. */
    void (*panel_f32)(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w);

    /* panel_f32() for bf16 x and bf16 weights, summed in f32. May read x and write y beyond `rows`,
     * up to a multiple of PANEL_PADDED_ROWS. NULL: the set lacks bf16 products; weights are converted to f32. */
    void (*panel_bf16)(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w);

    /* Dequantises inputs [k, k + kc) of one block of a panel to f32 to[kc][NR]. Inputs count from
     * w->k_begin; k and kc are multiples of QK_GROUP. */
    void (*dequantize_block)(float *to, const struct panel *w, size_t block, size_t k, size_t kc);

    /* Products like panel_f32 for int8 x and quantised weights. For every quant group (inputs that
     * share a scale) the integer products are summed exactly; then, group after group, in f32
     *   y = fma(scale * sum of (q - zero_point) * q_x, scale_x, y)
     *   y = fma(min, scale_x * sum of q_x, y)                     if the type has a min
     * With one scale per output (DTYPE_Q8_CHANNEL) y holds int32_t sums until w->last_k is set. May
     * read x and write y up to 15 rows beyond `rows`, but not beyond INT8_MAX_ROWS, and write y's
     * columns for blocks that the panel lacks. */
    void (*panel_int8)(float *y, const struct int8_rows *x, size_t rows, const struct panel *w);

    /* Repacks one tile of `rows` <= mr activation rows into the order in which panel_int8() reads
     * them for weights of that type. `mr`, the tile height, is int8_mr(type, all rows of the
     * product), or 0 if this set reads rows uninterleaved; with more than INT8_MAX_ROWS rows, a
     * divisor of these. Both functions are NULL in sets that never interleave. */
    void (*interleave_int8)(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                            enum dtype type);
    size_t (*int8_mr)(enum dtype type, size_t rows);

    /* Quantises x[n] to int8, q = round(x * (127 / max |x|)), ties to even, with scale = max |x| /
     * 127 for every `group` elements: QK_GROUP, or n or more for a single scale. Writes
     * scale[div_up(n, QK_GROUP)] and sum[div_up(n, QK_HALF)] as in struct int8_rows. A group with
     * an infinity or NaN gets the scale NaN and q = 0; where 127 / max |x| overflows, q is 0. */
    void (*to_int8)(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n, size_t group);

    void (*epilogue)(const struct epilogue *epilogue);

    void (*attend)(const struct attend *attend);

    /* attend() for K and V in bf16 with products of panel_bf16(): queries and probabilities are rounded to bf16. NULL:
     * the set lacks them; attend() rounds the same. */
    void (*attend_bf16)(const struct attend *attend);

    /* Attention over KV entries of DTYPE_Q8_CHANNEL, DTYPE_Q4_1 or 4, 5 or 6 bits (quant/kv_entries.h) with int8
     * queries, with the same bits in every set (attend_quant.h). Dot products are exact integer sums over columns that share a scale;
     * probabilities are rounded to 15 bits, relative to the largest one of QUANT_BLOCK positions. */
    void (*attend_quant)(const struct attend *attend);

    /* y = (x - mean) * (1 / sqrt(variance + eps)) * gain + bias; gain, bias may be NULL; y may be x. Sums are
     * sum16, of squares with fma() in the partial ones. */
    void (*layernorm)(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps);

    /* y = x * (1 / sqrt(mean of squares + eps)) * gain, with that sum; gain may be NULL; y may be x. */
    void (*rmsnorm)(float *y, const float *x, size_t n, const float *gain, float eps);

    /* Rotary embedding in place, for the first n_rot elements of `heads` heads of size d: rotates
     * the pair (j, j + n_rot / 2) by the angle of cosine[j] and sine[j], j < n_rot / 2. */
    void (*rope)(float *x, size_t heads, size_t d, size_t n_rot, const float *cosine,
                 const float *sine);

    /* In place: x[j] = exp(x[j] * scale + bias[j] - max) * (1 / sum16); 0 if the exponent is < -87.3. */
    void (*softmax)(float *x, size_t n, float scale, const float *bias);

    /* y[j] += x[j] */
    void (*add)(float *y, const float *x, size_t n);

    /* A step of a recurrence. */
    void (*recur)(const struct recur *recur);

    /* One output row of a causal convolution over n channels: y[j] = act(bias[j] + w[0][j] x[0][j] +
     * w[1][j] x[1][j] + ..), by fma() in this order over `taps` input rows; rows of w are `stride` elements apart.
     * bias may be NULL. */
    void (*convolve)(float *y, const float *const *x, size_t taps, const float *w, size_t stride,
                     const float *bias, size_t n, enum epilogue_act act);

    /* y[j] = act(g[j]) * x[j]; y may be x or g. */
    void (*gate)(float *y, const float *x, const float *g, size_t n, enum epilogue_act act);

    /* Conversions of n elements; split() approximates x by high + low. */
    void (*to_bf16)(bf16 *y, const float *x, size_t n);
    void (*to_f32)(float *y, const bf16 *x, size_t n);
    void (*split)(bf16 *high, bf16 *low, const float *x, size_t n);
};

/* The kernel sets of this build, simplest first, ended by NULL; valid after kernels_setup(). */
extern const struct kernels *const *const kernel_sets;

/* Returns the kernel set `isa`, or this machine's default (rates.h) if that is NULL or "". Returns
 * NULL and an error that lists the usable sets if that set is unknown or this machine cannot run
 * it. */
const struct kernels *kernels_select(const char *isa, struct err *err) MUST_USE;

/* Loads the libraries that the kernel set needs, if any. gemm_open() calls it too. */
int kernels_load(const struct kernels *kernels, struct err *err) MUST_USE;

/* Fills the empty slots of all kernel sets. Call it before any other function here. */
void kernels_setup(void);
