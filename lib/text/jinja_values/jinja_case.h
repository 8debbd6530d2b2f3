/* Upper and lower case of strings, and classes of characters, as Python has them. */
#ifndef BMC_JINJA_CASE_H
#define BMC_JINJA_CASE_H

#include "text/jinja_values/jinja_string.h"

enum js_case {
    JS_LOWER,
    JS_UPPER,
    JS_CAPITAL, /* the first character upper, all others lower */
    JS_TITLE,   /* every word capital; words are runs of letters */
    JS_WORDS,   /* every word capital; words end at blanks, hyphens and opening brackets */
    JS_SWAP,
};
const struct js *js_case(struct jinja_state *j, const struct js *s, enum js_case to);

enum js_class { JS_ALPHA, JS_DIGIT, JS_ALNUM, JS_SPACE, JS_IS_LOWER, JS_IS_UPPER };
bool js_is_all(struct jinja_state *j, const struct js *s, enum js_class class);

#endif
