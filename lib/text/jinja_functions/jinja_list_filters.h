/* Filters on lists, dicts and numbers. */
#ifndef BMC_JINJA_LIST_FILTERS_H
#define BMC_JINJA_LIST_FILTERS_H

#include "text/jinja_functions/jinja_builtin.h"

enum { JINJA_LIST_FILTERS = 24 };
extern const struct jinja_builtin jinja_list_filters[JINJA_LIST_FILTERS];

#endif
