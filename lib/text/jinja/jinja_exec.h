/* Execution of statements. */
#ifndef BMC_JINJA_EXEC_H
#define BMC_JINJA_EXEC_H

#include "text/jinja/jinja_eval.h"

/* Runs a template's statements with variables in `scope`; returns its text. */
const struct js *jinja_run(struct jinja_state *j, const struct jn_list *template,
                           struct jx_scope *scope);

#endif
