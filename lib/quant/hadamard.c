/* The fast Walsh-Hadamard transform. */
#include "quant/hadamard.h"

static void transform(float *x, size_t block, float scale)
{
    for (size_t half = 1; half < block; half *= 2)
        for (size_t i = 0; i < block; i += 2 * half)
            for (size_t j = i; j < i + half; j++) {
                const float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
    for (size_t j = 0; j < block; j++)
        x[j] *= scale;
}

void hadamard(float *x, size_t n, size_t block)
{
    const float scale = sqrtf(1 / (float)block);
    for (size_t i = 0; i < n; i += block)
        transform(x + i, block, scale);
}
