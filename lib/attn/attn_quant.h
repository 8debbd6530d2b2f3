/* Attention over quantised KV entries: queries quantised to int8, or entries dequantised. */
#ifndef BMC_ATTN_QUANT_H
#define BMC_ATTN_QUANT_H

#include "kernel/kernel.h"

/* An array of queries (q vectors of one head) in int8: for each its elements, then its scales and
 * sums as in struct int8_rows. */
struct quant_queries {
    int8_t *q;
    float *rotated; /* [d]: scratch */
    /* head size; byte offsets of the scales and sums in a query; bytes of a query */
    size_t d, scale_at, sum_at, bytes, n;
};

/* Allocates n queries of head size d; false: out of memory. Sets their head size, which may be smaller then. */
bool quant_queries_open(struct quant_queries *queries, size_t n, size_t d);
void quant_queries_resize(struct quant_queries *queries, size_t d);
void quant_queries_close(struct quant_queries *queries);

/* Quantises x[d] as query i, for keys of a type, and multiplies its stored scale by `scale` (of the
 * softmax). */
void quant_queries_set(const struct quant_queries *queries, size_t i, const float *x, float scale,
                       enum dtype type, const struct kernels *kernels);

/* Rotates the contexts of n queries back, context[n][d_v], if values of the type are rotated; d: head
 * size, whose hadamard_block() divides d_v (kv_open()). */
void quant_contexts_finish(float *context, size_t n, size_t d_v, enum dtype type, size_t d);

/* The queries from number `first` on, as an argument for attention kernels. */
struct int8_rows quant_queries_from(const struct quant_queries *queries, size_t first);

/* Dequantises tiles of K or V, at tile[t] with row tables rows[t] as in struct attend, to
 * to[tiles][ATTEND_TILE][d]; then sets tile[t] and rows[t] to the f32 tiles. */
void dequantize_tiles(float *to, const char **tile, const ptrdiff_t **rows, size_t tiles,
                      enum dtype type, size_t d);

#endif
