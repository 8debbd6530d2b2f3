/* What attention does for rows of few bits: queries are rounded to int8, or rows are widened. */
#include "attn/attn_few.h"

#include <stdlib.h>

#include "base/mem.h"

bool few_queries_open(struct few_queries *q, size_t queries, size_t d)
{
    const size_t codes = round_up(d, FEW_GROUP), groups = codes / FEW_GROUP;
    q->d = d;
    q->scale_at = codes;
    q->sum_at = codes + groups * sizeof(float);
    q->bytes = q->sum_at + 2 * groups * sizeof(int32_t);
    q->code = mem_zalloc(queries, q->bytes); /* codes behind the d'th stay 0 */
    return q->code != NULL;
}

void few_queries_close(struct few_queries *q)
{
    free(q->code);
    q->code = NULL;
}

void few_queries_set(const struct few_queries *q, size_t i, const float *x, float scale,
                     const struct kernels *kernels)
{
    int8_t *code = q->code + i * q->bytes;
    float *own = (float *)(void *)(code + q->scale_at);
    kernels->to_int8(code, own, (int32_t *)(void *)(code + q->sum_at), x, q->d, q->d);
    *own *= scale;
}

struct int8_rows few_queries_from(const struct few_queries *q, size_t first)
{
    const int8_t *code = q->code + first * q->bytes;
    return (struct int8_rows){
        .code = code,
        .scale = (const void *)(code + q->scale_at),
        .sum = (const void *)(code + q->sum_at),
        .row_bytes = q->bytes,
    };
}

void few_widen_tiles(float *to, const char **tile, const ptrdiff_t **rows, size_t tiles,
                     enum dtype type, size_t d)
{
    const ptrdiff_t bytes = (ptrdiff_t)dtype_row_bytes(type, d);
    for (size_t t = 0; t < tiles; t++) {
        float *to_t = to + t * ATTEND_TILE * d;
        for (ptrdiff_t i = 0; i < ATTEND_TILE; i++)
            dtype_widen(to_t + i * (ptrdiff_t)d, type, tile[t] + (rows[t] ? rows[t][i] : i * bytes), d);
        tile[t] = (const char *)to_t;
        rows[t] = NULL;
    }
}
