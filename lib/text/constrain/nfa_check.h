/* Checks of a compiled grammar. */
#ifndef BMC_NFA_CHECK_H
#define BMC_NFA_CHECK_H

#include "text/constrain/nfa.h"

/* Marks calls of rules that may be empty, replaces states from which nothing can be completed by
 * NFA_DEAD, and sets nfa->rank. Fails if the root matches no text, or for left recursion. */
int nfa_check(struct nfa *nfa, const struct grammar *grammar, struct err *err) MUST_USE;

#endif
