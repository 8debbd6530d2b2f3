/* The text of template values, as Python's str() and repr() write it. */
#ifndef BMC_JINJA_REPR_H
#define BMC_JINJA_REPR_H

#include "text/jinja_values/jinja_value.h"

/* str(): a string itself; nothing for undefined values. */
const struct js *jv_str(struct jinja_state *j, struct jv value);
void jv_add_str(struct js_builder *b, struct jv value);
void jv_add_repr(struct js_builder *b, struct jv value);

/* The shortest text that reads back as the same number, as Python writes it. */
void jinja_float_text(struct jinja_state *j, double x, char text[64]);

#endif
