/* Template: sizes of micro-kernels by kernel set. A begin header defines TUNING as the row of its set, and
 * SMALLM_HEIGHTS as the heights that belong to it. Most sizes follow from the number of registers; those of vnni were
 * measured (tests/bench/kernels.md).
 *
 *   f32       MR activation rows in PANEL_SUMS registers of 16 lanes (panel.h)
 *   int8      MR activation rows by BLOCKS weight blocks, whose f32 and integer sums fit in registers (gemm_int8.h)
 *   channel   the same with integer sums alone (DTYPE_Q8_CHANNEL)
 *   small     products of few rows, which unpack weights in registers (smallm_int8.h):
 *     MR, BLOCKS    the tallest tile, and the weight blocks of tiles of up to WIDE rows; taller ones have one
 *     LOW, HIGH     the lowest tile, and the lowest one for any number of tiles (SMALLM_HEIGHTS)
 *     FEW           rows and blocks of the tile for fewer rows, unless `int8` or `channel` has as many rows
 *     TWO           1: there is a tile for 2 rows
 *     MAX           most activation rows of such products */
#pragma once

/* clang-format off */
/*                        f32     int8   channel  small: MR WIDE BLOCKS LOW HIGH  FEW   TWO MAX */
#define TUNING_REF        1,  2,  3, 1,  3, 1,           4,  4,  1,     4,  4,    2, 2, 0,  8
#define TUNING_AVX2       4,  4,  3, 1,  3, 1,           4,  4,  1,     4,  4,    2, 2, 0,  8
#define TUNING_AVX512     6, 24,  3, 4,  4, 4,           6,  6,  2,     6,  6,    4, 2, 0, 32
#define TUNING_VNNI       6, 24,  3, 4,  4, 4,          16,  8,  2,     5, 12,    4, 4, 1, 80
#define TUNING_NEON       6,  6,  3, 1,  3, 1,           4,  4,  1,     4,  4,    2, 2, 0,  8
#define TUNING_DOTPROD    6,  6,  3, 1,  6, 1,           4,  4,  1,     4,  4,    2, 2, 0,  8
#define TUNING_I8MM       6,  6,  6, 1,  6, 1,           4,  4,  1,     4,  4,    2, 2, 0,  8
/* clang-format on */

/* The heights R of the tiles of smallm_int8.h, ascending up to SMALLM_MR; above SMALLM_WIDE_MR even ones only.
 * SINGLE(type, R): for a single tile, LOW: for up to two, HIGH: for any number of tiles; TWO: two rows. */
#define HEIGHTS_4(TWO, SINGLE, LOW, HIGH, type) LOW(type, 4) /* MAX rows are two tiles */
#define HEIGHTS_6(TWO, SINGLE, LOW, HIGH, type) HIGH(type, 6)
#define HEIGHTS_VNNI(TWO, SINGLE, LOW, HIGH, type)                                                     \
    TWO(type)                                                                                          \
    SINGLE(type, 5)                                                                                    \
    SINGLE(type, 6)                                                                                    \
    SINGLE(type, 7) SINGLE(type, 8) LOW(type, 10) HIGH(type, 12) HIGH(type, 14) HIGH(type, 16)

#define DEFINE_TUNING(row) DEFINE_SIZES(row)
#define DEFINE_SIZES(mr, sums, int8_mr, int8_blocks, channel_mr, channel_blocks, small_mr, wide_mr,    \
                     blocks, low_mr, high_mr, few_mr, few_blocks, two, max)                            \
    enum {                                                                                             \
        MR = mr,                                                                                       \
        PANEL_SUMS = sums,                                                                             \
        INT8_MR = int8_mr,                                                                             \
        INT8_BLOCKS = int8_blocks,                                                                     \
        CHANNEL_MR = channel_mr,                                                                       \
        CHANNEL_BLOCKS = channel_blocks,                                                               \
        SMALLM_MR = small_mr,                                                                          \
        SMALLM_WIDE_MR = wide_mr,                                                                      \
        SMALLM_BLOCKS = blocks,                                                                        \
        SMALLM_LOW_MR = low_mr,                                                                        \
        SMALLM_HIGH_MR = high_mr,                                                                      \
        SMALLM_FEW_MR = few_mr,                                                                        \
        SMALLM_FEW_BLOCKS = few_blocks,                                                                \
        SMALLM_HAS_TWO = two,                                                                          \
        SMALLM_MAX = max                                                                               \
    };

#ifdef TUNING
DEFINE_TUNING(TUNING)
#endif
