/* Strings that the filters safe and escape make. jinja2 holds them as Markup: `+` escapes what is added
 * to them, and most functions of strings return the same kind. */
#ifndef BMC_JINJA_MARKUP_H
#define BMC_JINJA_MARKUP_H

#include "text/jinja_values/jinja_value.h"

static inline bool jv_is_markup(struct jv v) { return v.kind == JV_STRING && v.owner == JV_STRING; }

/* A string, or a list or tuple of strings, as markup; other values as they are. */
struct jv jv_as_markup(struct jinja_state *j, struct jv value);

/* A value's text as markup, escaped for HTML unless it is markup. */
struct jv jv_escape(struct jinja_state *j, struct jv value);

#endif
