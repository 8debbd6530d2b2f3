/* Looks for names in a template. */
#ifndef BMC_JINJA_SEARCH_H
#define BMC_JINJA_SEARCH_H

#include "text/jinja/jinja_ast.h"

/* Whether a template reads a variable, an attribute or an item of that name. */
bool jn_names(const struct jn_list *template, const char *name);

/* Whether it tests one of that name for none: x.NAME is none, x["NAME"] != none. */
bool jn_asks_none(const struct jn_list *template, const char *name);

#endif
