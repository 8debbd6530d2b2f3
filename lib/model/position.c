/* RoPE (Su et al., 2021), its scalings for longer contexts, and ALiBi (Press et al., 2022). */
#include "model/position.h"

#include "base/repro_math.h"

/* Llama 3: divides rotary frequencies of long wavelengths by rope_factor, keeps those of short
 * ones, and interpolates in between. */
static double scale_llama3(const struct rope_plan *rope, double frequency)
{
    const double wave = 2 * M_PI / frequency, original = (double)rope->original;
    if (wave > original / rope->low)
        return frequency / rope->factor;
    if (wave < original / rope->high || rope->high <= rope->low)
        return frequency;
    const double keep = (original / wave - rope->low) / (rope->high - rope->low);
    return (1 - keep) * frequency / rope->factor + keep * frequency;
}

/* YaRN (Peng et al., 2023): the fractional index of the rotary pair that makes `turns` rotations in
 * the original context. */
static double yarn_edge(const struct rope_plan *rope, double turns)
{
    const double rope_dim = (double)rope->dim;
    return rope_dim * repro_log((double)rope->original / (turns * 2 * M_PI)) /
           (2 * repro_log(rope->theta));
}

/* YaRN: keeps the frequency of rotary pair j below the low edge, divides it by rope_factor above
 * the high edge, and blends both in between. */
static double scale_yarn(const struct rope_plan *rope, size_t j, double frequency)
{
    double low = yarn_edge(rope, rope->fast), high = yarn_edge(rope, rope->slow);
    if (rope->whole) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)rope->dim - 1);
    const double between = high == low ? 0.001 : high - low;
    const double stretch = fmin(fmax(((double)j - low) / between, 0), 1);
    return frequency / rope->factor * stretch + frequency * (1 - stretch);
}

/* NTK: a larger theta. Dynamic NTK: a larger one for sequences longer than the original context. */
static double base_for(const struct rope_plan *rope, size_t length)
{
    const double rope_dim = (double)rope->dim, original = (double)rope->original;
    if (rope->scaling == ROPE_NTK)
        return rope->theta * repro_pow(rope->factor, rope_dim / (rope_dim - 2));
    if (rope->scaling != ROPE_DYNAMIC || !rope_depends(rope, length))
        return rope->theta;
    const double grown = rope->factor * (double)length / original - (rope->factor - 1);
    return rope->theta * repro_pow(grown, rope_dim / (rope_dim - 2));
}

static double scale(const struct rope_plan *rope, size_t length, size_t j, double frequency)
{
    const struct factors *factors =
        rope_depends(rope, length) ? &rope->long_factor : &rope->short_factor;
    switch ((enum rope_scaling)rope->scaling) {
    case ROPE_PLAIN:
    case ROPE_NTK:
    case ROPE_DYNAMIC: return frequency;
    case ROPE_LINEAR: return frequency / rope->factor;
    case ROPE_LLAMA3: return scale_llama3(rope, frequency);
    case ROPE_YARN: return scale_yarn(rope, j, frequency);
    case ROPE_LONGROPE: return frequency / factors->x[j];
    }
    return frequency;
}

void rope_frequencies(const struct rope_plan *rope, size_t length, float *frequency)
{
    const double base = base_for(rope, length), share = rope->share != 0 ? rope->share : 1,
                 rotated = floor(share * (double)(rope->dim / 2));
    for (size_t j = 0; j < rope->dim / 2; j++) {
        const double plain = repro_pow(base, -2.0 * (double)j / (double)rope->dim);
        frequency[j] = (double)j < rotated ? (float)scale(rope, length, j, plain) : 0;
    }
}

bool rope_depends(const struct rope_plan *rope, size_t length)
{
    return (rope->scaling == ROPE_DYNAMIC || rope->scaling == ROPE_LONGROPE) && length > rope->original;
}

/* YaRN's attention factor, with a weight of its logarithm. */
static double yarn_mscale(const struct rope_plan *rope, double weight)
{
    return rope->factor > 1 ? 0.1 * weight * repro_log(rope->factor) + 1 : 1;
}

double rope_gain(const struct rope_plan *rope, size_t context)
{
    const double original = (double)rope->original, given = rope->factor;
    const double factor = given > 1 ? given : (double)context / original;
    if (rope->gain != 0)
        return rope->gain;
    if (rope->scaling == ROPE_YARN) {
        const bool ratio = rope->mscale != 0 && rope->mscale_all != 0;
        return yarn_mscale(rope, ratio ? rope->mscale : 1) /
               (ratio ? yarn_mscale(rope, rope->mscale_all) : 1);
    }
    if (rope->scaling == ROPE_LONGROPE && factor > 1)
        return sqrt(1 + repro_log(factor) / repro_log(original));
    return 1;
}

double attn_scale(const struct config *config)
{
    if (!config->latent->kv_rank)
        return config->attn_scale;
    const double d = (double)(config->latent->nope_dim + config->rope->dim);
    const double scale = config->attn_scale != 0 ? config->attn_scale : 1 / sqrt(d);
    const double mscale =
        config->rope->scaling == ROPE_YARN ? yarn_mscale(config->rope, config->rope->mscale_all) : 1;
    return scale * mscale * mscale;
}

void rope_angles(const float *frequency, size_t half, double gain, const size_t *position, size_t rows,
                 float *cosine, float *sine)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < half; j++) {
            /* the product is rounded to f32, as in training */
            const double angle = (float)position[i] * frequency[j];
            double s, c;
            repro_sincos(angle, &s, &c);
            cosine[i * half + j] = (float)(gain * c);
            sine[i * half + j] = (float)(gain * s);
        }
}

float attn_temperature(const struct temperature_plan *t, size_t position)
{
    const size_t times = t->length ? (position + t->offset) / t->length : 0;
    return (float)(1 + t->scale * repro_log(1 + (double)times));
}

void alibi_slopes(const struct config *config, float *slope)
{
    size_t whole = 1; /* the largest power of two not above H */
    while (2 * whole <= config->heads)
        whole *= 2;
    for (size_t h = 0; h < config->heads; h++)
        slope[h] =
            (float)repro_pow(2, h < whole ? -8.0 * (double)(h + 1) / (double)whole
                                          : -4.0 * (double)(2 * (h - whole) + 1) / (double)whole);
}
