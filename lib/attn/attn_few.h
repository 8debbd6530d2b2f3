/* What attention does for rows of few bits: queries are rounded to int8, or rows are widened. */
#ifndef BMC_ATTN_FEW_H
#define BMC_ATTN_FEW_H

#include "kernel/kernel.h"

/* Queries in int8: the codes, scales and sums of one lie together, and then come those of the next. */
struct few_queries {
    int8_t *code;
    size_t d, scale_at, sum_at, bytes; /* of a query, from its first code on */
};

bool few_queries_open(struct few_queries *q, size_t queries, size_t d);
void few_queries_close(struct few_queries *q);

/* Query i becomes x[d], whose scale is multiplied by `scale`. */
void few_queries_set(const struct few_queries *q, size_t i, const float *x, float scale,
                     const struct kernels *kernels);

/* Those from the first'th on, as kernels want them. */
struct int8_rows few_queries_from(const struct few_queries *q, size_t first);

/* Tiles of rows to f32: to[tiles][ATTEND_TILE][d]; tile[t] points there then, and has no row table. */
void few_widen_tiles(float *to, const char **tile, const ptrdiff_t **rows, size_t tiles,
                     enum dtype type, size_t d);

#endif
