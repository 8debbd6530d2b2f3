/* JSON as text: strings, white space, and values of any kind, as expressions of a grammar. */
#pragma once

#include "base/json.h"
#include "text/grammar/expr.h"

/* How values are written that are not JSON itself, but mean it. */
struct json_style {
    bool python; /* True, False, None, and no escape that Python has not */
    bool call;   /* the outermost object is (a=1, b=2); its names must be identifiers */
    /* Text around strings, which have no escapes, and names in letters, digits and underscores have no quotes; NULL: those of
     * JSON. It begins with two different characters of ASCII. */
    const char *quote;
    const char *quote_bytes; /* of `quote` in the grammar: the same, or those of expr_token_bytes() */
};

/* A grammar for JSON and the rules that its parts share; those without a rule yet are 0. */
struct json_grammar {
    struct grammar *grammar;
    struct json_style style;
    uint32_t string, escape, control, value, object, array; /* numbers of rules + 1 */
};

/* true, false or null, in the style. */
expr_id json_word(struct json_grammar *json, const char *word);

/* Any text in which `text` does not begin, which begins with two different characters of ASCII. */
expr_id json_text_without(struct grammar *grammar, const char *text);

/* A comma and white space: none, a space, or a line end and up to JSON_INDENT spaces. */
enum { JSON_INDENT = 20 };
expr_id json_comma(struct json_grammar *json);

/* Items behind n others, each after a comma, so that there are min to max in all. */
expr_id json_more(struct json_grammar *json, expr_id item, uint32_t min, uint32_t max, uint32_t n);

/* The contents of an object or a list in its brackets. They end on a line of their own only if they begin on one, so
 * that a model which began on the line of the bracket cannot fill its answer with white space. */
expr_id json_brackets(struct json_grammar *json, const char *open, expr_id contents, const char *close);

/* A string of min to max characters (EXPR_MANY: any number), each written as itself or escaped. */
expr_id json_text_string(struct json_grammar *json, uint32_t min, uint32_t max);

/* A character of a sorted set inside a JSON string, in one spelling: as itself, or escaped where JSON
 * asks for it. U+0000 is left out. */
expr_id json_char(struct json_grammar *json, const struct char_class *set);

/* A name of an object's member other than those listed, without escapes. */
expr_id json_other_name(struct json_grammar *json, const char *const *name, size_t n);

/* Appends a value as compact JSON; this value alone; this string as JSON. */
void json_constant_text(struct json_grammar *json, const json_t *value, struct buf *text);
expr_id json_constant(struct json_grammar *json, const json_t *value);
expr_id json_name(struct json_grammar *json, const char *name);

/* Any value; any object; any list. */
expr_id json_any(struct json_grammar *json);
expr_id json_any_object(struct json_grammar *json);

/* open (item ("," item)*)? close, with white space. `count`: EXPR_MANY or the most items. */
expr_id json_enclosed(struct json_grammar *json, const char *open, expr_id item, uint32_t min,
                      uint32_t max, const char *close);

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
expr_id json_number_multiples(struct json_grammar *json, const json_t *factor, bool integer,
                              const struct number_bound *min, const struct number_bound *max);

/* Whether a number is a multiple, in decimal; false if one has too many digits. */
bool json_is_multiple(const json_t *value, const json_t *factor);

/* The least common multiple of two numbers; NULL: it has too many digits. */
json_t *json_common_multiple(const json_t *x, const json_t *y);
