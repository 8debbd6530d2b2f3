/* Sets of strings: those that match several regular expressions, or do not, and whose length is in a range.
 * They are made deterministic together, and written as contents of JSON strings. */
#pragma once

#include "text/array_pool.h"
#include "text/grammar/regex.h"

enum { STRING_TERMS = 24 };

struct string_term {
    expr_id id;
    bool negated;
    uint32_t start; /* state */
};

/* Zeros, then string_set_begin(). Errors are kept in `expr`, as those of grammars. */
struct string_set {
    struct grammar expr; /* the terms, over code points */
    struct string_term term[STRING_TERMS];
    size_t n_terms;
    const char *only;  /* the first term's expression; NULL: it has look-ahead */
    unsigned use;      /* its use */
    uint32_t min, max; /* characters; EXPR_MANY: no limit */
    struct string_state *state;
    size_t n_states, states_cap;
    struct code_range *interval; /* all code points, in ranges that no expression tells apart */
    uint32_t *class_of;          /* [n_intervals] */
    size_t n_intervals, n_classes;
    bool *has;                   /* [ranges of `expr` that are classes][n_classes] */
    struct array_pool nodes;     /* deterministic states: characters so far, then string states */
    uint32_t *set, *todo, *seen; /* [n_states] */
    uint32_t stamp;
    size_t n_set, work;
};
void string_set_release(struct string_set *set);
