/* Tests of templates: value is NAME. */
#ifndef BMC_JINJA_TESTS_H
#define BMC_JINJA_TESTS_H

#include "text/jinja_functions/jinja_builtin.h"

struct jinja_table jinja_test_table(void);

/* The test of that name, or NULL. Tests return a bool. */
const struct jinja_builtin *jinja_test(const struct js *name);

#endif
