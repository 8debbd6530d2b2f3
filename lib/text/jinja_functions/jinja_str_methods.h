/* Methods of strings. */
#ifndef BMC_JINJA_STR_METHODS_H
#define BMC_JINJA_STR_METHODS_H

#include "text/jinja_functions/jinja_builtin.h"

enum { JINJA_STR_METHODS = 35 };
extern const struct jinja_builtin jinja_str_methods[JINJA_STR_METHODS];

/* `s` with up to `most` occurrences of `old` replaced; most < 0: all. */
const struct js *js_replace(struct jinja_state *j, const struct js *s, const struct js *old,
                            const struct js *new, int64_t most);

/* `s` padded to `width` characters: on the left, on the right, or both. */
const struct js *js_pad(struct jinja_state *j, const struct js *s, int64_t width, const struct js *fill,
                        unsigned sides);

#endif
