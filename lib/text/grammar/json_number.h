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

/* Multiples of `factor` > 0 between the bounds, with up to as many digits after the point as it has; integers alone if
 * `integer`. The grammar fails if the factor's digits, without zeros at the end, exceed JSON_FACTOR_MAX. */
enum { JSON_FACTOR_MAX = 1000 };
expr_id json_number_multiples(struct json_grammar *json, const json_t *factor, bool integer,
                              const struct number_bound *min, const struct number_bound *max);

/* Whether a number is a multiple, in decimal; false if one has too many digits. */
bool json_is_multiple(const json_t *value, const json_t *factor);

/* The least common multiple of two numbers; NULL: it has too many digits. */
json_t *json_common_multiple(const json_t *x, const json_t *y);

#endif
