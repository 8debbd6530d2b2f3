/* Filters of templates: value | NAME. */
#ifndef BMC_JINJA_FILTERS_H
#define BMC_JINJA_FILTERS_H

#include "text/jinja_functions/jinja_builtin.h"

/* The filter of that name, or NULL. */
const struct jinja_builtin *jinja_filter(const struct js *name);

#endif
