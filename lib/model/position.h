/* Rotary positions (frequencies per sequence, cosines and sines per step) and ALiBi slopes. */
#ifndef BMC_POSITION_H
#define BMC_POSITION_H

#include "model/config.h"

/* frequency[rope_dim / 2] with the configured scaling, for a sequence that grows to `length`
 * tokens, prompt included. */
void rope_frequencies(const struct config *config, size_t length, float *frequency);

/* True if `length` exceeds the original context of a length-dependent scaling (dynamic,
 * longrope). */
bool rope_depends(const struct config *config, size_t length);

/* Attention factor: multiplies cosines and sines. */
double rope_gain(const struct config *config);

/* cosine and sine [rows][half] of position[rows], times `gain`. */
void rope_angles(const float *frequency, size_t half, double gain, const size_t *position, size_t rows,
                 float *cosine, float *sine);

/* slope[heads] of ALiBi: 2^(-8i/H) if H is a power of two, else interpolated as by the authors. */
void alibi_slopes(const struct config *config, float *slope);

#endif
