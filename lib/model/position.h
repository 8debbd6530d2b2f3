/* RoPE (frequencies per sequence, cosines and sines per forward pass) and ALiBi slopes. */
#pragma once

#include "model/config.h"

/* Computes the rotary frequency[dim / 2], scaled for a sequence that grows to `length` tokens, prompt included. */
void rope_frequencies(const struct rope_plan *rope, size_t length, float *frequency);

/* True if `length` exceeds the original context of a length-dependent scaling (dynamic,
 * longrope). */
bool rope_depends(const struct rope_plan *rope, size_t length);

/* The attention factor of the RoPE scaling, by which cosines and sines are multiplied, of a model with a context length
 * of `context` tokens. */
double rope_gain(const struct rope_plan *rope, size_t context);

/* The factor of attention scores before softmax, with that of the rotation's mscale_all; 0: 1 / sqrt(head_dim). */
double attn_scale(const struct config *config);

/* Computes cosine and sine [rows][half] of the rotary angles at position[rows], times `gain`. */
void rope_angles(const float *frequency, size_t half, double gain, const size_t *position, size_t rows,
                 float *cosine, float *sine);

/* The factor of Q at a position; 1 if the model has no attn_temperature. */
float attn_temperature(const struct temperature_plan *temperature, size_t position);

/* Computes the ALiBi slope[heads]: 2^(-8i/H), i from 1, if the number of heads H is a power of two,
 * else interpolated as in the authors' code. */
void alibi_slopes(const struct config *config, float *slope);
