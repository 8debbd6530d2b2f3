/* Multiples of a number, as expressions of a grammar. */
#ifndef BMC_JSON_MULTIPLE_H
#define BMC_JSON_MULTIPLE_H

#include "text/grammar/expr.h"

/* The n / 10 ^ fraction, for multiples n of `factor` >= 1 from lo to hi, which have up to 18 digits, without leading
 * zeros. The grammar fails if the factor is too large, see json_number.h. */
expr_id json_multiples(struct grammar *grammar, uint64_t factor, size_t fraction, int64_t lo,
                       int64_t hi);

#endif
