/* Least-squares quantisation to types of two levels of scales. */
#pragma once

#include "quant/quant_types.h"

/* Like quantize(), for types with a scale per 256 inputs and one per group (SCALE_D). simple: rounds
 * to nearest, without searching for scales. */
bool quantize_levels(void *row, enum dtype type, const float *x, size_t n, const float *weight,
                     bool simple);
