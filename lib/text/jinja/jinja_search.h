/* Finds the names in a template. */
#ifndef BMC_JINJA_SEARCH_H
#define BMC_JINJA_SEARCH_H

#include "base/json.h"
#include "text/jinja/jinja_ast.h"

/* The names of variables, attributes and items that a template reads, as an object: true for those that it tests for
 * none, x.NAME is none, x["NAME"] != none. NULL: out of memory. */
json_t *jn_names(const struct jn_list *template) MUST_USE;

#endif
