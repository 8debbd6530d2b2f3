/* Fast quantisation and dequantisation of KV entries (quant/cache_types.h). Results equal those of
 * quant_types.c bit for bit, except that NaN or infinity in a row makes its scale not finite. */
#ifndef BMC_QUANT_ROWS_H
#define BMC_QUANT_ROWS_H

#include "quant/dtype.h"

/* Convert a row of DTYPE_Q8_CHANNEL or DTYPE_Q4_1; return false for other types. */
bool quant_rows_dequantize(float *to, enum dtype type, const void *row, size_t n);
bool quant_rows_quantize(void *row, enum dtype type, const float *x, size_t n);

#endif
