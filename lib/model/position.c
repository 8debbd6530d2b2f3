/* Rotary positions (Su et al., 2021), with linear scaling and that of Llama 3; ALiBi (Press et al., 2022). */
#include "model/position.h"

#include <math.h>

/* Llama 3: long waves are stretched by the factor, short ones kept, those between blended. */
static double scale_llama3(const struct config *config, double frequency)
{
    const double wave = 2 * M_PI / frequency, original = (double)config->rope_original;
    if (wave > original / config->rope_low)
        return frequency / config->rope_factor;
    if (wave < original / config->rope_high)
        return frequency;
    const double keep = (original / wave - config->rope_low) / (config->rope_high - config->rope_low);
    return (1 - keep) * frequency / config->rope_factor + keep * frequency;
}

void rope_frequencies(const struct config *config, float *frequency)
{
    const size_t turned = config_rope_dim(config);
    for (size_t j = 0; j < turned / 2; j++) {
        double f = pow(config->rope_theta, -2.0 * (double)j / (double)turned);
        if (config->rope_scaling == ROPE_LINEAR)
            f /= config->rope_factor;
        else if (config->rope_scaling == ROPE_LLAMA3)
            f = scale_llama3(config, f);
        frequency[j] = (float)f;
    }
}

void rope_angles(const float *frequency, size_t half, const size_t *position, size_t rows,
                 float *cosine, float *sine)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < half; j++) {
            /* The angle is rounded to f32, as the models were trained. */
            const double angle = (float)position[i] * frequency[j];
            cosine[i * half + j] = (float)cos(angle);
            sine[i * half + j] = (float)sin(angle);
        }
}

void alibi_slopes(const struct config *config, float *slope)
{
    size_t whole = 1; /* the largest power of two among the heads */
    while (2 * whole <= config->heads)
        whole *= 2;
    for (size_t h = 0; h < config->heads; h++)
        slope[h] = (float)(h < whole ? exp2(-8.0 * (double)(h + 1) / (double)whole)
                                     : exp2(-4.0 * (double)(2 * (h - whole) + 1) / (double)whole));
}
