/* RoPE (Su et al., 2021), its scalings for longer contexts, and ALiBi (Press et al., 2022). */
#include "model/position.h"

#include <math.h>

/* Llama 3: divides rotary frequencies of long wavelengths by rope_factor, keeps those of short
 * ones, and interpolates in between. */
static double scale_llama3(const struct config *config, double frequency)
{
    const double wave = 2 * M_PI / frequency, original = (double)config->rope_original;
    if (wave > original / config->rope_low)
        return frequency / config->rope_factor;
    if (wave < original / config->rope_high || config->rope_high <= config->rope_low)
        return frequency;
    const double keep = (original / wave - config->rope_low) / (config->rope_high - config->rope_low);
    return (1 - keep) * frequency / config->rope_factor + keep * frequency;
}

/* YaRN (Peng et al., 2023): the fractional index of the rotary pair that makes `turns` rotations in
 * the original context. */
static double yarn_edge(const struct config *config, double turns)
{
    const double rope_dim = (double)config_rope_dim(config);
    return rope_dim * log((double)config->rope_original / (turns * 2 * M_PI)) /
           (2 * log(config->rope_theta));
}

/* YaRN: keeps the frequency of rotary pair j below the low edge, divides it by rope_factor above
 * the high edge, and blends both in between. */
static double scale_yarn(const struct config *config, size_t j, double frequency)
{
    double low = yarn_edge(config, config->rope_fast), high = yarn_edge(config, config->rope_slow);
    if (config->rope_whole) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)config_rope_dim(config) - 1);
    const double between = high == low ? 0.001 : high - low;
    const double stretch = fmin(fmax(((double)j - low) / between, 0), 1);
    return frequency / config->rope_factor * stretch + frequency * (1 - stretch);
}

/* NTK: a larger theta. Dynamic NTK: a larger one for sequences longer than the original context. */
static double base_for(const struct config *config, size_t length)
{
    const double rope_dim = (double)config_rope_dim(config), original = (double)config->rope_original;
    if (config->rope_scaling == ROPE_NTK)
        return config->rope_theta * pow(config->rope_factor, rope_dim / (rope_dim - 2));
    if (config->rope_scaling != ROPE_DYNAMIC || !rope_depends(config, length))
        return config->rope_theta;
    const double grown = config->rope_factor * (double)length / original - (config->rope_factor - 1);
    return config->rope_theta * pow(grown, rope_dim / (rope_dim - 2));
}

static double scale(const struct config *config, size_t length, size_t j, double frequency)
{
    const struct factors *factors =
        rope_depends(config, length) ? &config->rope_long : &config->rope_short;
    switch ((enum rope_scaling)config->rope_scaling) {
    case ROPE_PLAIN:
    case ROPE_NTK:
    case ROPE_DYNAMIC: return frequency;
    case ROPE_LINEAR: return frequency / config->rope_factor;
    case ROPE_LLAMA3: return scale_llama3(config, frequency);
    case ROPE_YARN: return scale_yarn(config, j, frequency);
    case ROPE_LONGROPE: return frequency / factors->x[j];
    }
    return frequency;
}

void rope_frequencies(const struct config *config, enum layer_rope rope, size_t length,
                      float *frequency)
{
    const size_t rope_dim = config_table_dim(config, rope);
    const double share = config->rope_share != 0 ? config->rope_share : 1,
                 rotated = floor(share * (double)(rope_dim / 2));
    const bool local = rope == LAYER_ROPE_LOCAL;
    const double local_base =
        config->rope_local_theta != 0 ? config->rope_local_theta : config->rope_theta;
    const double base = local ? local_base : base_for(config, length);
    for (size_t j = 0; j < rope_dim / 2; j++) {
        const double plain = pow(base, -2.0 * (double)j / (double)rope_dim);
        frequency[j] = (float)(local ? plain : scale(config, length, j, plain));
        if (!local && (double)j >= rotated)
            frequency[j] = 0;
    }
}

bool rope_depends(const struct config *config, size_t length)
{
    return (config->rope_scaling == ROPE_DYNAMIC || config->rope_scaling == ROPE_LONGROPE) &&
           length > config->rope_original;
}

/* YaRN's attention factor, with a weight of its logarithm. */
static double yarn_mscale(const struct config *config, double weight)
{
    return config->rope_factor > 1 ? 0.1 * weight * log(config->rope_factor) + 1 : 1;
}

double rope_gain(const struct config *config, enum layer_rope rope)
{
    const double original = (double)config->rope_original, given = config->rope_factor;
    const double factor = given > 1 ? given : (double)config->context / original;
    if (rope == LAYER_ROPE_LOCAL)
        return 1;
    if (config->rope_gain != 0)
        return config->rope_gain;
    if (config->rope_scaling == ROPE_YARN) {
        const bool ratio = config->rope_mscale != 0 && config->rope_mscale_all != 0;
        return yarn_mscale(config, ratio ? config->rope_mscale : 1) /
               (ratio ? yarn_mscale(config, config->rope_mscale_all) : 1);
    }
    if (config->rope_scaling == ROPE_LONGROPE && factor > 1)
        return sqrt(1 + log(factor) / log(original));
    return 1;
}

double attn_scale(const struct config *config)
{
    if (!config->kv_lora_rank)
        return config->attn_scale;
    const double d = (double)(config->nope_dim + config->rope_dim);
    const double scale = config->attn_scale != 0 ? config->attn_scale : 1 / sqrt(d);
    const double mscale =
        config->rope_scaling == ROPE_YARN ? yarn_mscale(config, config->rope_mscale_all) : 1;
    return scale * mscale * mscale;
}

void rope_angles(const float *frequency, size_t half, double gain, const size_t *position, size_t rows,
                 float *cosine, float *sine)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < half; j++) {
            /* the product is rounded to f32, as in training */
            const double angle = (float)position[i] * frequency[j];
            cosine[i * half + j] = (float)(gain * cos(angle));
            sine[i * half + j] = (float)(gain * sin(angle));
        }
}

float attn_temperature(const struct config *config, size_t position)
{
    const size_t at = position + config->temperature_offset;
    const size_t times = config->temperature_length ? at / config->temperature_length : 0;
    return (float)(1 + config->attn_temperature * log(1 + (double)times));
}

void alibi_slopes(const struct config *config, float *slope)
{
    size_t whole = 1; /* the largest power of two not above H */
    while (2 * whole <= config->heads)
        whole *= 2;
    for (size_t h = 0; h < config->heads; h++)
        slope[h] = (float)(h < whole ? exp2(-8.0 * (double)(h + 1) / (double)whole)
                                     : exp2(-4.0 * (double)(2 * (h - whole) + 1) / (double)whole));
}
