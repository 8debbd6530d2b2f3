/* Filters (value | NAME), tests (value is NAME), and functions that templates can call by name. */
#pragma once

#include "text/jinja/jinja_methods.h"

enum jinja_set { JINJA_FILTERS, JINJA_TESTS, JINJA_GLOBALS, JINJA_SETS };

/* The functions of a set; that of a name, or NULL. Tests return a bool. */
struct jinja_table jinja_functions(enum jinja_set set);
const struct jinja_builtin *jinja_named(enum jinja_set set, const struct js *name);
