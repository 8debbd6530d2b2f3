/* Fast quantisation and dequantisation of KV entries (quant/cache_types.h). Results equal those of
 * quant_types.c bit for bit, except that a row with NaN or infinity gets a scale that is not
 * finite. */
#pragma once

#include "quant/dtype.h"

/* Dequantise a row to f32 to[n], and quantise f32 x[n] to a row, of type DTYPE_Q8_CHANNEL or
 * DTYPE_Q4_1; return false for other types. */
bool quant_rows_dequantize(float *to, enum dtype type, const void *row, size_t n);
bool quant_rows_quantize(void *row, enum dtype type, const float *x, size_t n);

/* Quantises f32 x[n] with one scale, and for DTYPE_Q4_1 one minimum, for values from `low` to `high`; those outside
 * saturate. DTYPE_Q8_CHANNEL: integers from -127 to 127 times the larger magnitude / 127. DTYPE_Q4_1: from 0 to 15 times
 * (high - low) / 15, plus low, both rounded to f16. */
void quant_rows_quantize_range(void *row, enum dtype type, const float *x, size_t n, float low,
                               float high);
