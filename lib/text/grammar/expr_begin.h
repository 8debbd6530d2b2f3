/* Expressions for some of the texts of others: those that begin in a certain way. */
#ifndef BMC_EXPR_BEGIN_H
#define BMC_EXPR_BEGIN_H

#include "text/grammar/char_class.h"

/* The texts of an expression whose first character is in a sorted set. Repetitions of what may be empty lose texts. */
expr_id expr_begin(struct grammar *grammar, expr_id id, const struct char_class *set);

/* What follows an ASCII character at the start of the texts that begin with it. */
expr_id expr_after(struct grammar *grammar, expr_id id, char first);

#endif
