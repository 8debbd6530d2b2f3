/* Functions that templates can call by name. */
#ifndef BMC_JINJA_GLOBALS_H
#define BMC_JINJA_GLOBALS_H

#include "text/jinja_functions/jinja_builtin.h"

struct jinja_table jinja_global_table(void);

/* range, dict, namespace, cycler, joiner, raise_exception, strftime_now; NULL: no such function. */
const struct jinja_builtin *jinja_global(const struct js *name);

#endif
