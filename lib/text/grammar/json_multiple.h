/* Multiples of an integer, as expressions of a grammar. */
#ifndef BMC_JSON_MULTIPLE_H
#define BMC_JSON_MULTIPLE_H

#include "text/grammar/expr.h"

/* The multiples of `factor` >= 1 from lo to hi, which have up to 18 digits, without leading zeros. The grammar
 * fails if the factor is too large, see json_number.h. */
expr_id json_multiples(struct grammar *grammar, uint64_t factor, int64_t lo, int64_t hi);

#endif
