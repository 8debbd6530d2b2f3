/* Attention over quantised KV entries: queries quantised to int8, or entries dequantised. */
#ifndef BMC_ATTN_QUANT_H
#define BMC_ATTN_QUANT_H

#include "kernel/kernel.h"

/* An array of queries in int8: each with its q, then its scales and sums (struct int8_rows). */
struct quant_queries {
    int8_t *q;
    size_t d, scale_at, sum_at, bytes; /* head size; byte offsets in a query; its bytes */
};

/* Allocates n queries of head size d. False: out of memory. */
bool quant_queries_open(struct quant_queries *queries, size_t n, size_t d);
void quant_queries_close(struct quant_queries *queries);

/* Quantises x[d] as query i, and multiplies its scale by `scale`. */
void quant_queries_set(const struct quant_queries *queries, size_t i, const float *x, float scale,
                       const struct kernels *kernels);

/* The queries from number `first` on, as arguments of kernels. */
struct int8_rows quant_queries_from(const struct quant_queries *queries, size_t first);

/* Dequantises KV tiles to to[tiles][ATTEND_TILE][d] and sets tile[t] and rows[t] to the result. */
void dequantize_tiles(float *to, const char **tile, const ptrdiff_t **rows, size_t tiles,
                      enum dtype type, size_t d);

#endif
