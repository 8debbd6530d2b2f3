/* Positions that enter attention. Rotary ones: frequencies once, cosines and sines for the positions of a step. */
#ifndef BMC_POSITION_H
#define BMC_POSITION_H

#include "model/config.h"

/* frequency[config_rope_dim() / 2], with the scaling that the configuration asks for. Some depend on how long the text
 * becomes: `length` tokens, the prompt among them. */
void rope_frequencies(const struct config *config, size_t length, float *frequency);

/* True when a text of `length` tokens has other frequencies than a short one. */
bool rope_depends(const struct config *config, size_t length);

/* A factor of cosines and sines. */
double rope_gain(const struct config *config);

/* cosine, sine [rows][half] for the positions of `rows` rows, times `gain`. */
void rope_angles(const float *frequency, size_t half, double gain, const size_t *position, size_t rows,
                 float *cosine, float *sine);

/* slope[heads] of ALiBi (Press et al., 2022): 2^(-8i/H) where H is a power of two, else as the authors fill up. */
void alibi_slopes(const struct config *config, float *slope);

#endif
