/* Template: products of int8 activation rows with quantised weights. A begin header defines
 *
 *   vi_dot4(sum, u, s)        the integer products (vec.h), or
 *   vi_dot4_bits(bits, ..)    the same for weights of `bits` bits, or
 *   INT8_PAIRS(bits)          for an instruction that adds two products in 16 bits: the number of
 *                             lines whose sums fit in 16 bits. vs_pairs(bits, w, x) multiplies a
 *                             line, vi_join(pairs) widens sums to 32 bits
 *   INT8_ZERO(bits)           constant that all of these subtract from the weights; default 0
 *   INT8_ZERO_BY_BITS         defined if INT8_ZERO() depends on `bits`
 *   INT8_MATMUL               defined if there are instructions for products of matrices, which
 *                             int8_matmul.h uses instead
 *   vi_dot4_word(sum, w, at)  optional: adds the products of line w and the word at `at` to the lvalue `sum`,
 *                             in program order. Required if SMALLM_WIDE_MR < SMALLM_MR (tuning.h)
 *
 * Products of up to SMALLM_MAX rows unpack weights in registers (smallm_int8.h).
 * With more rows, each K slab of the panel (256 inputs) is unpacked once and multiplied by all
 * rows. Results equal those of dequantize.h bit for bit. */
#pragma once

#include "kernel/template/int8_matmul.h"
#include "kernel/template/quantize_int8.h"
#include "kernel/template/smallm_int8.h"

/* Prefetches the quantised weights of the next K slab, a few lines with every tile, so that memory
 * requests are always in flight and never too many. */
struct kslab_prefetch {
    const char *at, *end; /* bytes of the current weight block that are still to prefetch */
    size_t blocks;        /* weight blocks after the current one */
    size_t bytes, skip;   /* bytes to prefetch per weight block; gap to those of the next block */
    size_t each;          /* bytes per call, a divisor of `bytes`; 0: all is prefetched */
};

/* Prepares to prefetch the K slab of weights at `next` (NULL: none) in about `times` calls of
 * kslab_prefetch_some(). */
static struct kslab_prefetch kslab_prefetch_begin(const struct panel *w, const char *next, size_t times)
{
    const size_t bytes = pack_q_bytes(w->type, KSLAB);
    size_t each = PACK_LINE;
    while (each * times < w->blocks * bytes && bytes % (each * 2) == 0)
        each *= 2;
    if (!next)
        return (struct kslab_prefetch){0};
    return (struct kslab_prefetch){
        .at = next,
        .end = next + bytes,
        .blocks = w->blocks - 1,
        .bytes = bytes,
        .skip = w->block_bytes - bytes,
        .each = each,
    };
}

INLINE void kslab_prefetch_some(struct kslab_prefetch *next)
{
    if (next->each == 0)
        return;
    const char *end = next->at + next->each;
    for (const char *at = next->at; at < end; at += PACK_LINE)
        __builtin_prefetch(at, 0, 2);
    next->at = end;
    if (end == next->end) {
        next->at += next->skip;
        next->end = next->at + next->bytes;
        if (next->blocks-- == 0)
            next->each = 0;
    }
}

#ifndef INT8_MATMUL
/* Adds the products of R activation rows and the q tiles with index `qtile` of C weight blocks to
 * `sum`, one quant group (inputs that share a scale) after the other. */
INLINE void add_qtile(const int R, const int C, enum dtype type, vf sum[ACC_MR][ACC_VECS],
                      const struct int8_tile *tile, const char *x, size_t qtile)
{
    const int V = C * NR_VECS, groups = qtile_groups(type);
    struct qtile_operands from = {.stored = DTYPE_Q8_0, .x = x};
    vi dot[ACC_MR][ACC_VECS];
    for (int v = 0; v < V; v++)
        from.w[v] =
            tile->kslab->q[tile->block + v / NR_VECS] + qtile * QTILE_BYTES + v % NR_VECS * VW * 4;
    for (int n = 0; n < groups; n++) {
        const size_t group = qtile * groups + n;
        FOR_ACC(dot[i][v] = type == DTYPE_Q8_CHANNEL ? (vi)sum[i][v]
                                                     : vi_load_own(x + INTERLEAVED_START(R, n, i)));
        dot_group(R, V, type, dot, &from, n);
        UNROLL(for (int v = 0; v < V; v++))
        {
            const size_t b = tile->block + v / NR_VECS, at = v % NR_VECS * VW;
            const struct qscale_vec scale = {vf_load(&tile->kslab->scale[group][b][at]),
                                             vf_load(&tile->kslab->min[group][b][at])};
            const vf magic = vf_load(&tile->kslab->magic[group][b][at]);
            UNROLL(for (int i = 0; i < R; i++))
            sum[i][v] = type == DTYPE_Q8_CHANNEL
                            ? (vf)dot[i][v]
                            : add_scaled(R, type, sum[i][v], dot[i][v], &scale, magic, x, n, i);
        }
    }
}

#define SUM_AT(y) ((y) + i * PANEL_WIDTH + tile.block * NR + v * VW)

INLINE void int8_tile(const int R, const int C, enum dtype type, const struct int8_tile *given)
{
    const int V = C * NR_VECS;
    const struct int8_tile tile = *given;
    vf sum[ACC_MR][ACC_VECS];
    const float *from = tile.accumulate ? tile.y : zero_sums;
    FOR_ACC(sum[i][v] = vf_load(SUM_AT(from)));
    UNROLL(for (int i = 0; type == DTYPE_Q8_CHANNEL && i < R; i++))
    {
        const vi start = vi_set1(channel_start(R, &tile, i));
        UNROLL(for (int v = 0; v < V; v++))
        sum[i][v] = (vf)((vi)sum[i][v] + start);
    }
    const char *x = tile.x;
    for (size_t qtile = 0; qtile < tile.kslab->qtiles; qtile++, x += R * INT8_INTERLEAVED_BYTES)
        add_qtile(R, C, type, sum, &tile, x, qtile);
    FOR_ACC(vf_store(SUM_AT(tile.y), sum[i][v]));
}
#endif

/* Types whose micro-kernels serve all types. Micro-kernels read unpacked bytes, so what matters is the size of
 * quant groups, whether there is a min, and, in sets whose instructions depend on it, the bits of the integers:
 * of the listed types with the same groups and min, the first with at least as many bits is used. */
#ifdef INT8_ZERO_BY_BITS
#define INT8_FORMS(X)                                                                                  \
    X(Q4_0) X(Q5_0) X(IQ3_XXS) X(IQ2_XXS) X(Q8_0) X(Q4_1) X(Q5_1) X(Q6_K) X(IQ2_XS) X(Q2_K) X(Q8_2L)
#define INT8_FORM_BITS(type) quant_integer_bits(type)
#else
#define INT8_FORMS(X)        X(Q8_0) X(Q5_1) X(Q6_K) X(Q8_2L)
#define INT8_FORM_BITS(type) 0
#endif

typedef void int8_tile_function(const struct int8_tile *tile);

/* One function per form: compiles faster than a single one for all. */
#define INT8_TILE(type, R, C)                                                                          \
    static __attribute__((noinline)) void int8_tile_##type(const struct int8_tile *tile)               \
    {                                                                                                  \
        int8_tile(R, C, DTYPE_##type, tile);                                                           \
    }
#define INT8_FORM_TILE(type)  INT8_TILE(type, INT8_MR, INT8_BLOCKS)
#define INT8_FORM_ENTRY(type) {DTYPE_##type, int8_tile_##type},
INT8_FORMS(INT8_FORM_TILE)
INT8_TILE(Q8_CHANNEL, CHANNEL_MR, CHANNEL_BLOCKS)

static const struct {
    enum dtype type;
    int8_tile_function *tile;
} int8_forms[] = {INT8_FORMS(INT8_FORM_ENTRY)};

/* The micro-kernel for weights of a type. */
static int8_tile_function *int8_tile_of(enum dtype type)
{
    size_t i = 0;
    while (qtile_groups(int8_forms[i].type) != qtile_groups(type) ||
           quant_has_min(int8_forms[i].type) != quant_has_min(type) ||
           INT8_FORM_BITS(int8_forms[i].type) < INT8_FORM_BITS(type))
        i++;
    return type == DTYPE_Q8_CHANNEL ? int8_tile_Q8_CHANNEL : int8_forms[i].tile;
}

/* Multiplies `rows` interleaved activation rows, of x_inputs inputs each, by a K slab of weights,
 * and prefetches the weights at `next`. `first` is the tile of the first rows. Sums of rows that
 * only pad the last tile are never read. */
static void int8_kslab(const struct int8_tile *first, size_t rows, size_t x_inputs,
                       const struct panel *w, const char *next)
{
    const size_t mr = gemm_mr(w->type);
    const size_t columns = w->type == DTYPE_Q8_CHANNEL ? CHANNEL_BLOCKS : INT8_BLOCKS;
    struct kslab_prefetch prefetch =
        kslab_prefetch_begin(w, next, div_up(rows, mr) * div_up(w->blocks, columns));
    int8_tile_function *const multiply = int8_tile_of(w->type);
    struct int8_tile tile = *first;
    for (size_t i = 0; i < rows; i += mr) {
        for (tile.block = 0; tile.block < w->blocks; tile.block += columns) {
            kslab_prefetch_some(&prefetch);
            multiply(&tile);
        }
        tile.y += mr * PANEL_WIDTH;
        tile.x += x_inputs / QK_GROUP * mr * INT8_INTERLEAVED_BYTES;
    }
}

/* Interleaves inputs [k, k + kc) of activation rows, for products where gemm.c has not done so:
 * those whose weights and gate differ in type. */
static const char *interleave_kslab(char *interleaved, const struct int8_rows *x, size_t rows,
                                    const struct panel *w, size_t k, size_t kc)
{
    const size_t mr = gemm_mr(w->type);
    for (size_t i = 0; i < rows; i += mr) {
        const struct int8_rows from = row_at(x, i, k);
        interleave_int8(interleaved + i * (kc / QK_GROUP) * INT8_INTERLEAVED_BYTES, &from,
                        size_min(mr, rows - i), mr, kc, w->type);
    }
    return interleaved;
}

static void gemm_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    struct kslab kslab __attribute__((aligned(PACK_LINE)));
    char interleaved[(INT8_MAX_ROWS + ACC_MR) * KSLAB_QTILES * INT8_INTERLEAVED_BYTES]
        __attribute__((aligned(PACK_LINE)));
    const size_t mr = gemm_mr(w->type);
    for (size_t k = 0, kc; k < w->kc; k += kc) {
        kc = size_min(KSLAB, w->kc - k);
        kslab.qtiles = kc / QK_GROUP;
        kslab_fill(&kslab, w, k);
        const bool last = k + kc == w->kc;
        const char *next = last ? w->next : (const char *)qtile_at(w->type, w, 0, k + kc);
        const struct int8_tile tile = {
            .y = y,
            .x = x->interleaved ? x->interleaved + k / QK_GROUP * mr * INT8_INTERLEAVED_BYTES
                                : interleave_kslab(interleaved, x, rows, w, k, kc),
            .kslab = &kslab,
            .accumulate = w->accumulate || k > 0,
        };
        int8_kslab(&tile, rows, x->interleaved ? w->kc : kc, w, next);
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    if (x->interleaved && x->mr != gemm_mr(w->type))
        smallm_int8(y, x, rows, w);
    else
        gemm_int8(y, x, rows, w);
    if (w->type == DTYPE_Q8_CHANNEL && w->last_k)
        channel_epilogue(y, x, rows, w);
}

#define INT8_SLOTS                                                                                     \
    .panel_int8 = panel_int8, .to_int8 = to_int8, .interleave_int8 = interleave_int8, .int8_mr = int8_mr
