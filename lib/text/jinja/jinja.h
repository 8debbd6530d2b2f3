/* Jinja templates: an interpreter of the language that chat templates are written in.
 *
 * It renders what jinja2 renders, as transformers sets it up: expressions, filters, tests, loops,
 * macros, namespaces; blocks drop the newline after them and the blanks before them. Whatever it does
 * not know is an error that names line and column. A template cannot read files, change values that
 * it was given, or run without end: steps, nesting and memory are bounded. Integers have 64 bits.
 *
 * Files, lowest layer first; each uses only those before it:
 *
 *    jinja_value     arena, limits, errors; strings, which know the bytes that are content; values and
 *                    their operators
 *    jinja_text      text of values: str() and repr(), the % operator, escaping, JSON
 *    jinja_methods   calling functions of the interpreter; methods, attributes and items
 *    jinja_filters   filters, tests and global functions
 *    jinja_lexer jinja_parser   from text to syntax tree
 *    jinja           names in templates, evaluation, templates as a whole */
#pragma once

#include <time.h>

#include "base/json.h"
#include "text/jinja/jinja_methods.h"
#include "text/jinja/jinja_parser.h"
#include "text/slice.h"

struct jinja_template;

/* Parses a template; `name` is used in errors. The text is copied. */
int jinja_parse(struct jinja_template **parsed, const char *text, size_t len, const char *name,
                struct err *err) MUST_USE;
void jinja_free(struct jinja_template *template);

/* Appends the added text of the template itself, without what it inserts, to `text`: the places where
 * tokens of the model can be named. */
int jinja_literals(const struct jinja_template *template, struct buf *text, struct err *err) MUST_USE;

/* Whether a template reads a variable, an attribute or an item of that name; whether it tests one of that
 * name for none. */
bool jinja_names(const struct jinja_template *template, const char *name);
bool jinja_asks_none(const struct jinja_template *template, const char *name);

struct jinja_input {
    /* Variables, JSON objects. Strings in `content` are marked in the output, except the members
     * `role` of messages that name a usual role; strings in `trusted` are not. A name in both has
     * the value in `content`. NULL: none. */
    const json_t *trusted, *content;
    struct tm now; /* for strftime_now() */
};

/* Limits, so that a template of any origin ends; 0: default. */
struct jinja_limits {
    uint64_t steps;
    size_t memory;
};

/* Renders the template: appends its text and the byte ranges of it that are content. After an error
 * `out` is unchanged. */
int jinja_render(const struct jinja_template *template, const struct jinja_input *input,
                 const struct jinja_limits *limits, struct marked_text *out, struct err *err) MUST_USE;

/* Variables of a block; those of the blocks around it are seen through `parent`. */
struct jx_scope {
    struct jx_scope *parent;
    struct jx_var *var;
    size_t n, cap;
};

struct jinja_macro {
    const struct jn *node;  /* JN_MACRO, JN_CALL_BLOCK */
    struct jx_scope *scope; /* where it was defined */
};
