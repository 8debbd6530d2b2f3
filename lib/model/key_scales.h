/* Scales of the elements of keys, by which quantised caches lose less: a head of Q is divided by what the head of K is
 * multiplied by, so that their products stay as they are. */
#pragma once

#include "base/err.h"
#include "model/weights.h"

/* Elements of quantised keys have errors of about one size, rotated or not, which attention multiplies by elements of Q:
 * the sum of squared errors of scores is least where an element of K has the same variance as that of Q (as SmoothQuant,
 * Xiao et al. 2023, equation 4, balances activations and weights; here for both sides, with its exponent 1/2). With norms
 * of heads (QK norm) these are their gains, so that the scales follow from the weights alone. They are powers of two, which
 * round nothing: scores of an f32, f16 or bf16 cache keep their bits. The elements of a rotary pair have one.
 *
 * Sets exponent[d] of the scales 2^exponent of K, from the gains q[d] and k[d]; of pairs, elements j and `pairs` + j for
 * j < pairs, pairs <= d / 2. The sum of squares of the gains of K stays about the same. Gains of 0 and scales of finite
 * gains beyond 2^+-8 are left as they are or limited. */
void key_exponents(int *exponent, const float *q, const float *k, size_t d, size_t pairs);

/* Replaces the gains of QK norms in bound weights by scaled ones, in *gains, which replaces none (NULL) in models whose
 * scales are all 1 or that have no gains for each head of Q and K of the same layer. */
int key_scales_apply(struct weights *weights, const struct config *config, float **gains,
                     struct err *err) MUST_USE;
