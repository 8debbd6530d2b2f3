/* What a pass of fused attention keeps of each query. */
#include "attn/attn_states.h"

#include <math.h>

size_t states_floats(size_t queries, size_t d) { return queries * (1 + LANES + d); }

struct states states_at(size_t queries, float *at)
{
    return (struct states){at, at + queries, at + queries * (1 + LANES)};
}

void states_clear(size_t d, const struct states *state, size_t queries)
{
    for (size_t i = 0; i < queries; i++)
        state->max[i] = -INFINITY;
    memset(state->sum, 0, queries * LANES * sizeof(float));
    memset(state->context, 0, queries * d * sizeof(float));
}

void states_join(size_t d, const struct states *a, const struct states *b, size_t queries)
{
    for (size_t i = 0; i < queries; i++) {
        if (!(b->max[i] > -INFINITY) && !isnan(b->max[i]))
            continue;
        const float max = fmaxf(a->max[i], b->max[i]);
        const float of_a = expf(a->max[i] - max), of_b = expf(b->max[i] - max);
        float *sum = a->sum + i * LANES, *context = a->context + i * d;
        for (size_t j = 0; j < LANES; j++)
            sum[j] = sum[j] * of_a + b->sum[i * LANES + j] * of_b;
        for (size_t j = 0; j < d; j++)
            context[j] = context[j] * of_a + b->context[i * d + j] * of_b;
        a->max[i] = max;
    }
}

void states_result(size_t d, const struct states *states, size_t i, float *context)
{
    float sum[LANES];
    memcpy(sum, states->sum + i * LANES, sizeof sum);
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            sum[j] += sum[j + half];
    const float share = 1 / sum[0];
    for (size_t j = 0; j < d; j++)
        context[j] = states->context[i * d + j] * share;
}
