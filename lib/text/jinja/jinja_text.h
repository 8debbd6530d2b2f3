/* The text of template values, as Python's str() and repr() write it. */
#pragma once

#include "base/json.h"
#include "text/jinja/jinja_value.h"

/* str(): a string itself; nothing for undefined values. */
const struct js *jv_str(struct jinja_state *j, struct jv value);
void jv_add_str(struct js_builder *b, struct jv value);

static inline bool jv_is_markup(struct jv v) { return v.kind == JV_STRING && v.owner == JV_STRING; }

/* A string, or a list or tuple of strings, as markup; other values as they are. */
struct jv jv_as_markup(struct jinja_state *j, struct jv value);

/* A value's text as markup, escaped for HTML unless it is markup. */
struct jv jv_escape(struct jinja_state *j, struct jv value);

/* `values`: a tuple, or the only value. Known are %s %r %d %i %x %X %o %f %e %g %c and %%, with flags,
 * width and precision. */
const struct js *jinja_format(struct jinja_state *j, const struct js *format, struct jv values);

/* A value from JSON; the texts are borrowed. Strings and names are content (jinja_value.h) if
 * `content`. */
struct jv jv_from_json(struct jinja_state *j, const json_t *json, bool content);

struct jinja_json_style {
    bool ascii, sort_keys;
    const struct js *indent;     /* for each level; NULL: all on one line */
    const struct js *item, *key; /* separators after an item and after a key */
};

/* The JSON text of a value, as json.dumps() of Python writes it. */
const struct js *jv_to_json(struct jinja_state *j, struct jv value,
                            const struct jinja_json_style *style);

/* Arithmetic, with Python's rules; integers have 64 bits. */
enum jv_op { JV_ADD, JV_SUB, JV_MUL, JV_DIV, JV_FLOORDIV, JV_MOD, JV_POW, JV_OPS };

struct jv jv_arith(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b);
struct jv jv_negate(struct jinja_state *j, struct jv value, bool positive); /* -x, or +x */
