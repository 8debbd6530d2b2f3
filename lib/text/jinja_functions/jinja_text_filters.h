/* Filters on text, and tojson. */
#ifndef BMC_JINJA_TEXT_FILTERS_H
#define BMC_JINJA_TEXT_FILTERS_H

#include "text/jinja_functions/jinja_builtin.h"

enum { JINJA_TEXT_FILTERS = 17 };
extern const struct jinja_builtin jinja_text_filters[JINJA_TEXT_FILTERS];

#endif
