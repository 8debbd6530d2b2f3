/* Regular expressions as constraints. */
#pragma once

#include "text/grammar/json_text.h"

/* How an expression is used: a sum of these. */
enum regex_use {
    REGEX_WHOLE = 0,  /* texts that match from start to end */
    REGEX_SEARCH = 1, /* texts in which there is a match, as in JSON Schema */
    REGEX_PREFIX = 2, /* texts that begin with a match */
    REGEX_JSON = 4,   /* the contents of JSON strings, escaped as JSON asks for */
    REGEX_WIDE = 8, /* where dialects differ, what matches in any of them, not in all: for negations */
};

/* Adds a regular expression, UTF-8, in the syntax common to ECMAScript, PCRE and Python. `json` has
 * the grammar; its errors are kept there and name the position. `use`: of enum regex_use. */
expr_id regex_parse(struct json_grammar *json, const char *text, size_t len, unsigned use);

/* The same; repetitions without end have up to `open` of what they repeat, or as many as they have to. */
expr_id regex_parse_open(struct json_grammar *json, const char *text, size_t len, unsigned use,
                         uint32_t open);
static inline uint32_t regex_most(uint32_t min, uint32_t max, uint32_t open)
{
    return max != EXPR_MANY ? max : open > min ? open : min;
}
