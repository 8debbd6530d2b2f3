/* Rows of the types that caches have (base/cache_types.h), made and widened quickly: a step makes a row for every head, and
 * some readers widen all that there are. The same bits as the rules of base/few_bits.c, but that a row with a value that
 * is not finite has a scale that is not, either. */
#ifndef BMC_FEW_ROWS_H
#define BMC_FEW_ROWS_H

#include "base/dtype.h"

/* False, and nothing done, where the type is another one. */
bool few_rows_widen(float *to, enum dtype type, const void *row, size_t n);
bool few_rows_narrow(void *row, enum dtype type, const float *x, size_t n);

#endif
