/* Methods of values. */
#ifndef BMC_JINJA_METHODS_H
#define BMC_JINJA_METHODS_H

#include "text/jinja_functions/jinja_builtin.h"

/* jv_list.next of a tuple made by the filter groupby, whose items have names. */
enum { GROUP_TUPLE = 1 };

/* The methods that values of a kind have. */
struct jinja_table jinja_method_table(enum jv_kind kind);

/* The method of that name that values of a kind have, or NULL; one whose `call` is NULL may not be used. */
const struct jinja_builtin *jinja_method(enum jv_kind kind, const struct js *name);

#endif
