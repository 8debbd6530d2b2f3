/* Sizes of tiles of int8 products (gemm_int8.h) where registers hold few sums, for begin headers of
 * such sets; these define INT8_MR and CHANNEL_MR themselves. */
#ifndef BMC_SMALL_TILES_H
#define BMC_SMALL_TILES_H

#define INT8_BLOCKS                             1
#define CHANNEL_BLOCKS                          1
#define SMALLM_MR                               4
#define SMALLM_BLOCKS                           1
#define SMALLM_LOW_MR                           4
#define SMALLM_HIGH_MR                          4
#define SMALLM_FEW_MR                           2
#define SMALLM_FEW_BLOCKS                       2
#define SMALLM_MAX                              8
#define SMALLM_HEIGHTS(SINGLE, LOW, HIGH, type) HIGH(type, 4)

#endif
