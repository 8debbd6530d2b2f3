/* Template: repacks int8 activation rows into the order in which micro-kernels read them.
 *
 * Rows are stored in tiles of R. For each group of 32 inputs (QK_GROUP) a tile has
 *   int8_t q[8 lines][R][4]   quantised activations, 4 neighbouring inputs per line
 *   float scale[R]
 *   int32_t start[2][R]       initial accumulator of a quant group: -zero_point * sum of q
 *   float scaled_sum[2][R]    scale * sum of q, which the weights' min is multiplied by
 * with one or two quant groups (inputs that share a weight scale). */
#pragma once

#include "kernel/template/row_scale.h"

/* Constant that the kernel set's product instructions already subtract from the weights. */
#ifndef INT8_ZERO
#define INT8_ZERO(bits) 0
#endif

#ifdef INT8_MATMUL /* in the tiles of int8_matmul.h 8 neighbouring inputs of a row, two lines, are adjacent */
#define INTERLEAVED_Q(R, line, i)                                                                      \
    ((R) == INT8_MR || (R) == CHANNEL_MR ? (((line) / 2 * (R) + (i)) * 2 + (line) % 2) * 4             \
                                         : ((line) * (R) + (i)) * 4)
#else
#define INTERLEAVED_Q(R, line, i) (((line) * (R) + (i)) * 4)
#endif
#define INTERLEAVED_SCALE(R, i)        (QTILE_LINES * 4 * (R) + 4 * (i))
#define INTERLEAVED_START(R, group, i) (INTERLEAVED_SCALE(R, R) + ((group) * (R) + (i)) * 4)
#define INTERLEAVED_SUM(R, group, i)   (INTERLEAVED_START(R, 2, 0) + ((group) * (R) + (i)) * 4)
_Static_assert(INTERLEAVED_SUM(1, 2, 0) == INT8_INTERLEAVED_BYTES, "kernel.h has the size");

/* Quant groups per q tile: one of 32 inputs or two of 16. */
INLINE int qtile_groups(enum dtype type) { return quant_group(type, QK_GROUP) == QK_HALF ? 2 : 1; }

/* What interleaved rows have for weights of a type. */
struct rows_start {
    int groups;          /* quant groups per q tile */
    int32_t begin, zero; /* starts are begin - zero * sum of q */
};

INLINE struct rows_start rows_start_of(enum dtype type)
{
    return (struct rows_start){
        .groups = qtile_groups(type),
        .begin = type == DTYPE_Q8_CHANNEL ? 0 : MAGIC_BITS,
        .zero = quant_types[type].zero_point - INT8_ZERO(quant_integer_bits(type)),
    };
}

/* Stores 32 inputs of an activation row as row i of the tile at `to`, whose height is mr. */
INLINE void interleave_group(const int groups, const struct rows_start *start, char *to, size_t mr,
                             size_t i, const struct int8_rows *row)
{
    for (size_t j = 0; j < QTILE_LINES; j++)
        memcpy(to + INTERLEAVED_Q(mr, j, i), row->q + 4 * j, 4);
    memcpy(to + INTERLEAVED_SCALE(mr, i), row->scale, sizeof *row->scale);
    for (int n = 0; n < groups; n++) {
        const int32_t sum = groups == 2 ? row->sum[n] : row->sum[0] + row->sum[1];
        const int32_t first = start->begin - start->zero * sum;
        const float scaled_sum = *row->scale * (float)sum;
        memcpy(to + INTERLEAVED_START(mr, n, i), &first, sizeof first);
        memcpy(to + INTERLEAVED_SUM(mr, n, i), &scaled_sum, sizeof scaled_sum);
    }
}

/* Interleaves a tile of `rows` <= mr activation rows, padded to mr with zeros. */
INLINE void interleave_tile(const int groups, struct rows_start start, char *to,
                            const struct int8_rows *x, size_t rows, size_t mr, size_t kc)
{
    if (rows < mr)
        memset(to, 0, kc / QK_GROUP * mr * INT8_INTERLEAVED_BYTES);
    for (size_t k = 0; k < kc; k += QK_GROUP, to += mr * INT8_INTERLEAVED_BYTES)
        for (size_t i = 0; i < rows; i++) {
            const struct int8_rows row = row_at(x, i, k);
            interleave_group(groups, &start, to, mr, i, &row);
        }
}

/* interleave_int8() of struct kernels. Groups and mr = 1 are passed as constants, so that the compiler merges the
 * copies of 4-byte words. */
static void interleave_int8(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                            enum dtype type)
{
    const struct rows_start start = rows_start_of(type);
    if (start.groups == 1 && mr == 1)
        interleave_tile(1, start, to, x, 1, 1, kc);
    else if (start.groups == 1)
        interleave_tile(1, start, to, x, rows, mr, kc);
    else if (mr == 1)
        interleave_tile(2, start, to, x, 1, 1, kc);
    else
        interleave_tile(2, start, to, x, rows, mr, kc);
}

/* Activation rows per tile of gemm_int8.h. */
INLINE size_t gemm_mr(enum dtype type) { return type == DTYPE_Q8_CHANNEL ? CHANNEL_MR : INT8_MR; }

static size_t int8_mr(enum dtype type, size_t rows)
{
    if (rows > SMALLM_MAX)
        return gemm_mr(type);
    if (rows == 1)
        return 1;
    if (SMALLM_HAS_TWO && rows == 2)
        return 2;
    if (rows <= SMALLM_FEW_MR && gemm_mr(type) != SMALLM_FEW_MR)
        return SMALLM_FEW_MR;
    const size_t even = div_up(rows, div_up(rows, SMALLM_MR));
    const size_t mr = even > SMALLM_WIDE_MR ? round_up(even, 2) : even;
    return size_max(mr, rows > 2 * SMALLM_MR ? SMALLM_HIGH_MR : SMALLM_LOW_MR);
}
#define SMALLM_IS_NOT(mr) (SMALLM_LOW_MR > (mr) || SMALLM_MR < (mr))
_Static_assert(!SMALLM_HAS_TWO || (INT8_MR != 2 && CHANNEL_MR != 2 && SMALLM_FEW_MR != 2),
               "mr selects the kernel");
_Static_assert(SMALLM_IS_NOT(INT8_MR) && SMALLM_IS_NOT(CHANNEL_MR) && SMALLM_LOW_MR > SMALLM_FEW_MR &&
                   SMALLM_FEW_MR != INT8_MR,
               "mr selects the kernel");
_Static_assert(SMALLM_MAX + SMALLM_MR <= INT8_MAX_ROWS, "smallm_int8.h has all rows in one chunk");
_Static_assert(INT8_MAX_ROWS % INT8_MR == 0 && INT8_MAX_ROWS % CHANNEL_MR == 0,
               "chunks of rows end where tiles do");
