/* Tokens of a template: literal text, and those inside of {{ }} and {% %}. */
#pragma once

#include "text/jinja/jinja_value.h"

enum jt_kind {
    JT_TEXT,
    JT_PRINT, /* {{ */
    JT_BLOCK, /* {% */
    JT_CLOSE, /* }} or %} */
    JT_NAME,
    JT_STRING,
    JT_NUMBER,
    JT_SIGN, /* operator or bracket */
    JT_END
};

struct jt {
    enum jt_kind kind;
    size_t pos;      /* offset in the source */
    struct jv value; /* text, name, string: a string; number: an integer or float */
    char sign[4];
};

struct jt_list {
    struct jt *token; /* the last one is JT_END */
    size_t n, cap;
};

/* Splits j->source, valid UTF-8 without carriage returns, into tokens. White space around blocks is
 * removed as transformers sets it: the newline after a block, and blanks between the start of a line
 * and a block. */
struct jt_list jinja_lex(struct jinja_state *j);
