/* Arithmetic of template values, with Python's rules; integers have 64 bits. */
#ifndef BMC_JINJA_ARITH_H
#define BMC_JINJA_ARITH_H

#include "text/jinja_values/jinja_value.h"

enum jv_op { JV_ADD, JV_SUB, JV_MUL, JV_DIV, JV_FLOORDIV, JV_MOD, JV_POW, JV_OPS };

struct jv jv_arith(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b);
struct jv jv_negate(struct jinja_state *j, struct jv value, bool positive); /* -x, or +x */

#endif
