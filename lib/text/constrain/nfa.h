/* Compiles a grammar into a nondeterministic automaton over bytes with calls of rules: a pushdown
 * automaton whose stack is in automaton.h.
 *
 * Checks the grammar: refuses left recursion and roots that match no text, and removes states from
 * which no text can be completed. A call at the end of a rule is a jump, so that right recursion
 * needs no stack. */
#pragma once

#include "text/grammar/expr.h"

enum nfa_kind {
    NFA_FINAL, /* end of a rule; only state 0 */
    NFA_DEAD,  /* no text can be completed from here */
    NFA_JUMP,  /* to a without reading */
    NFA_SPLIT, /* to a and b without reading */
    NFA_BYTE,  /* reads a byte in [lo, hi], to a */
    NFA_CALL,  /* calls rule b, then to a; to a at once as well if `lo` is set: the rule may be empty */
};

struct nfa_state {
    uint8_t kind, lo, hi;
    uint32_t a, b;
};

struct nfa {
    struct nfa_state *state;
    size_t n, cap;
    size_t n_rules;
    uint32_t root;    /* number of the root rule; the start of rule r is state 1 + r */
    uint32_t *rank;   /* [n_rules]: a rule that another one may call before reading has a lower rank */
    uint8_t cls[256]; /* class of each byte; bytes of a class are never told apart */
    uint8_t any[256]; /* [classes]: one byte of each class */
    size_t classes;
};

int nfa_compile(struct nfa *nfa, const struct grammar *grammar, struct err *err) MUST_USE;
void nfa_release(struct nfa *nfa);

static inline uint32_t nfa_rule_start(uint32_t rule) { return 1 + rule; }
