/* Helpers of attention over quantised KV entries. */
#include "attn/attn_quant.h"

#include <stdlib.h>

#include "base/mem.h"
#include "quant/hadamard.h"

void quant_queries_resize(struct quant_queries *queries, size_t d)
{
    const size_t padded = round_up(d, QK_GROUP), groups = padded / QK_GROUP;
    if (queries->d == d)
        return;
    queries->d = d;
    queries->scale_at = padded;
    queries->sum_at = padded + groups * sizeof(float);
    queries->bytes = queries->sum_at + 2 * groups * sizeof(int32_t);
    if (queries->q && padded != d) /* padding behind d elements stays 0 */
        memset(queries->q, 0, queries->n * queries->bytes);
}

bool quant_queries_open(struct quant_queries *queries, size_t n, size_t d)
{
    *queries = (struct quant_queries){.n = n};
    quant_queries_resize(queries, d);
    queries->q = mem_zalloc(n, queries->bytes);
    queries->rotated = mem_alloc(d, sizeof *queries->rotated);
    return queries->q && queries->rotated;
}

void quant_queries_close(struct quant_queries *queries)
{
    free(queries->q);
    free(queries->rotated);
    queries->q = NULL;
    queries->rotated = NULL;
}

void quant_queries_set(const struct quant_queries *queries, size_t i, const float *x, float scale,
                       enum dtype type, const struct kernels *kernels)
{
    int8_t *q = queries->q + i * queries->bytes;
    float *own = (float *)(void *)(q + queries->scale_at);
    if (type == DTYPE_Q4_1_ROTATED) {
        memcpy(queries->rotated, x, queries->d * sizeof *x);
        hadamard(queries->rotated, queries->d, hadamard_block(queries->d));
        x = queries->rotated;
    }
    kernels->to_int8(q, own, (int32_t *)(void *)(q + queries->sum_at), x, queries->d, queries->d);
    *own *= scale;
}

void quant_contexts_finish(float *context, size_t n, size_t d_v, enum dtype type, size_t d)
{
    if (type == DTYPE_Q4_1_ROTATED)
        hadamard(context, n * d_v, hadamard_block(d));
}

struct int8_rows quant_queries_from(const struct quant_queries *queries, size_t first)
{
    const int8_t *q = queries->q + first * queries->bytes;
    return (struct int8_rows){
        .q = q,
        .scale = (const void *)(q + queries->scale_at),
        .sum = (const void *)(q + queries->sum_at),
        .row_bytes = queries->bytes,
    };
}

void dequantize_tiles(float *to, const char **tile, const ptrdiff_t **rows, size_t tiles,
                      enum dtype type, size_t d)
{
    const ptrdiff_t bytes = (ptrdiff_t)dtype_row_bytes(type, d);
    for (size_t t = 0; t < tiles; t++) {
        float *to_t = to + t * ATTEND_TILE * d;
        for (ptrdiff_t i = 0; i < ATTEND_TILE; i++)
            dtype_to_f32(to_t + i * (ptrdiff_t)d, type, tile[t] + (rows[t] ? rows[t][i] : i * bytes),
                         d);
        tile[t] = (const char *)to_t;
        rows[t] = NULL;
    }
}
