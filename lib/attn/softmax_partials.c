/* Partial results of online softmax, and their merge. */
#include "attn/softmax_partials.h"

#include <math.h>

size_t softmax_partials_floats(size_t queries, size_t d) { return queries * (1 + NR + d); }

struct softmax_partials softmax_partials_at(size_t queries, float *at)
{
    return (struct softmax_partials){at, at + queries, at + queries * (1 + NR)};
}

void softmax_partials_clear(size_t d, const struct softmax_partials *partials, size_t queries)
{
    for (size_t i = 0; i < queries; i++)
        partials->max[i] = -INFINITY;
    memset(partials->sum, 0, queries * NR * sizeof(float));
    memset(partials->context, 0, queries * d * sizeof(float));
}

void softmax_partials_merge(size_t d, const struct softmax_partials *a,
                            const struct softmax_partials *b, size_t queries)
{
    for (size_t i = 0; i < queries; i++) {
        if (!(b->max[i] > -INFINITY) && !isnan(b->max[i]))
            continue;
        const float max = fmaxf(a->max[i], b->max[i]);
        const float scale_a = expf(a->max[i] - max), scale_b = expf(b->max[i] - max);
        float *sum = a->sum + i * NR, *context = a->context + i * d;
        for (size_t j = 0; j < NR; j++)
            sum[j] = sum[j] * scale_a + b->sum[i * NR + j] * scale_b;
        for (size_t j = 0; j < d; j++)
            context[j] = context[j] * scale_a + b->context[i * d + j] * scale_b;
        a->max[i] = max;
    }
}

void softmax_partials_result(size_t d, const struct softmax_partials *partials, size_t i,
                             const float *sink, float *out)
{
    float sum[NR];
    memcpy(sum, partials->sum + i * NR, sizeof sum);
    for (size_t half = NR / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            sum[j] += sum[j + half];
    float scale = 1 / sum[0];
    if (sink) {
        const float max = fmaxf(partials->max[i], *sink), factor = expf(partials->max[i] - max);
        scale = factor / (sum[0] * factor + expf(*sink - max));
    }
    for (size_t j = 0; j < d; j++)
        out[j] = partials->context[i * d + j] * scale;
}
