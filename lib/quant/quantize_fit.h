/* Least-squares fits of the scale and min of one quant group. */
#pragma once

#include "quant/quant_types.h"

enum { FIT_LEVELS = 16 }; /* of a codebook */

/* The values of a quant group, and the integers c = q - zero_point that can stand for them. */
struct fit_range {
    const float *x, *weight; /* weights of squared errors; NULL: all equal */
    size_t n;
    float low, high;         /* least and greatest c */
    const uint8_t *codebook; /* [16] every c in ascending order, plus the zero point; NULL: all
                                  integers of the range */
    float zero_point;
    float rise[FIT_LEVELS - 1], middle[FIT_LEVELS - 1]; /* between neighbouring c of the codebook */
    bool has_min, min_below_0;                          /* min_below_0: min cannot be positive */
    bool f16;                                           /* scale and min are stored as f16 */
    enum dtype grid_type; /* a type with a grid, whose points give c; else DTYPE_F32 */
};

/* Weighted sums over a group for the nearest c, and the squared error. */
struct fit_sums {
    float w, x, c, cc, xc, error;
};

struct fit_best {
    struct quant_scale v;
    float error; /* INFINITY: no line was found */
};

/* The range of n values x of a group of `type`; weight may be NULL. */
struct fit_range fit_range(enum dtype type, const float *x, const float *weight, size_t n);

/* Sums and error of a group whose scale and min are v. */
struct fit_sums fit_measure(const struct fit_range *range, struct quant_scale v);

/* Searches for the scale and min with the least error. */
struct fit_best fit_search(const struct fit_range *range);

/* Scale and min that cover the range of values. */
struct quant_scale fit_nearest(const struct fit_range *range);

/* Stores the nearest quantised values for scale and min v as number `at` and following of a row,
 * which must be 0 there before. */
void fit_store(unsigned char *row, enum dtype type, const struct fit_range *range, struct quant_scale v,
               size_t at);
