/* Filters of templates: value | NAME. */
#ifndef BMC_JINJA_FILTERS_H
#define BMC_JINJA_FILTERS_H

#include "text/jinja_functions/jinja_builtin.h"

/* The filters, in several tables; behind the last one empty ones. */
struct jinja_table jinja_filter_table(size_t nth);

/* The filter of that name, or NULL. */
const struct jinja_builtin *jinja_filter(const struct js *name);

#endif
