/* Numbers of JSON in a range, as expressions of a grammar. */
#ifndef BMC_JSON_NUMBER_H
#define BMC_JSON_NUMBER_H

#include "text/grammar/json_text.h"

/* A bound of a range; NULL value: none. */
struct number_bound {
    const json_t *value; /* a number */
    bool exclusive;
};

/* Integers, written without point and exponent, between the bounds. Without a bound the range ends at
 * 15 digits, or at as many as the other bound has. */
expr_id json_integer_range(struct json_grammar *json, const struct number_bound *min,
                           const struct number_bound *max);

/* Decimal numbers without exponent between the bounds, of up to 15 digits together. The grammar fails
 * if a bound has more before the point, or more than 18 after it. */
expr_id json_number_range(struct json_grammar *json, const struct number_bound *min,
                          const struct number_bound *max);

/* Multiples of `factor` >= 1 among those integers. The grammar fails if the factor, without the power of ten
 * in it, exceeds JSON_FACTOR_MAX. */
enum { JSON_FACTOR_MAX = 1000 };
expr_id json_integer_multiples(struct json_grammar *json, uint64_t factor,
                               const struct number_bound *min, const struct number_bound *max);

#endif
