/* Positions that enter attention. Rotary ones: frequencies once, cosines and sines for the positions of a step. */
#ifndef BMC_POSITION_H
#define BMC_POSITION_H

#include "model/config.h"

/* frequency[config_rope_dim() / 2], with the scaling that the configuration asks for. */
void rope_frequencies(const struct config *config, float *frequency);

/* cosine, sine [rows][half] for the positions of `rows` rows. */
void rope_angles(const float *frequency, size_t half, const size_t *position, size_t rows,
                 float *cosine, float *sine);

/* slope[heads] of ALiBi (Press et al., 2022): 2^(-8i/H) where H is a power of two, else as the authors fill up. */
void alibi_slopes(const struct config *config, float *slope);

#endif
