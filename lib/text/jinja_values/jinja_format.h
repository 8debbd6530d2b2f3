/* Formatting of strings with %s, %d and the like, as Python's % operator does. */
#ifndef BMC_JINJA_FORMAT_H
#define BMC_JINJA_FORMAT_H

#include "text/jinja_values/jinja_value.h"

/* `values`: a tuple, or the only value. Known are %s %r %d %i %x %X %o %f %e %g %c and %%, with flags,
 * width and precision. */
const struct js *jinja_format(struct jinja_state *j, const struct js *format, struct jv values);

#endif
