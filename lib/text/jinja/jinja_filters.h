/* Filters of templates: value | NAME. */
#ifndef BMC_JINJA_FILTERS_H
#define BMC_JINJA_FILTERS_H

#include "text/jinja/jinja_methods.h"

/* The filters, in several tables; behind the last one empty ones. */
struct jinja_table jinja_filter_table(size_t nth);

/* The filter of that name, or NULL. */
const struct jinja_builtin *jinja_filter(const struct js *name);

struct jinja_table jinja_test_table(void);

/* The test of that name, or NULL. Tests return a bool. */
const struct jinja_builtin *jinja_test(const struct js *name);

struct jinja_table jinja_global_table(void);

/* range, dict, namespace, cycler, joiner, raise_exception, strftime_now; NULL: no such function. */
const struct jinja_builtin *jinja_global(const struct js *name);

#endif
