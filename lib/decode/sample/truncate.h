/* The steps of the sampler that leave out candidates or change the temperature. */
#pragma once

#include "decode/sample/sampler.h"

/* Number of the most likely tokens that need be candidates: that of top-k if it is the first step. */
size_t sampler_first_cut(const struct sampler *sampler);

/* Applies the steps to the candidates, which are sorted, and sets their probabilities. */
void sampler_truncate(struct sampler *sampler);
