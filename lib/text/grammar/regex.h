/* Regular expressions as constraints. */
#ifndef BMC_CONSTRAIN_REGEX_H
#define BMC_CONSTRAIN_REGEX_H

#include "text/grammar/json_text.h"

enum regex_use {
    REGEX_WHOLE,       /* texts that match from start to end */
    REGEX_JSON_WHOLE,  /* contents of JSON strings that do, escaped as JSON asks for */
    REGEX_JSON_SEARCH, /* contents of JSON strings in which there is a match, as in JSON Schema */
};

/* Adds a regular expression, UTF-8, in the syntax common to ECMAScript, PCRE and Python. `json` has
 * the grammar; its errors are kept there and name the position. */
expr_id regex_parse(struct json_grammar *json, const char *text, size_t len, enum regex_use use);

#endif
