/* Matrix products of eager attention, through a library. */
#pragma once

#include "attn/attn.h"

/* c[m][n] = a[m][k] b[k][n], f32, for each matrix of a batch over sequences and KV heads. Rows, and
 * matrices of the batch, are so many elements apart. All members are of one size, so that
 * products are equal if their bytes are. */
struct eager_product {
    size_t m, n, k;
    size_t transposed; /* 1: b is stored as [n][k] */
    size_t accumulate; /* 1: added to c */
    size_t batch[2];   /* sequences, KV heads */
    size_t a_row, b_row, c_row;
    size_t a_step[2], b_step[2], c_step[2];
};

struct eager_library {
    bool batched; /* takes batches of more than one matrix */

    /* Loads the library, unless it is loaded. Each open() that does not fail is followed by close(); NULL: nothing to
     * do. */
    int (*open)(struct err *err);
    void (*close)(void);

    /* Multiplies on the calling thread; thread-safe. */
    int (*multiply)(const struct eager_product *product, float *c, const float *a, const float *b,
                    struct err *err);
};

extern const struct eager_library eager_blas, eager_onednn;

struct attn_counts onednn_counts(void);
