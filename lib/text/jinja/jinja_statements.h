/* Parser of templates. */
#ifndef BMC_JINJA_STATEMENTS_H
#define BMC_JINJA_STATEMENTS_H

#include "text/jinja/jinja_ast.h"

/* Parses j->source: the statements of the template. */
struct jn_list jinja_statements(struct jinja_state *j);

#endif
