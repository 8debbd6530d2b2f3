/* Sets of strings: those that match several regular expressions, or do not, and whose length is in a range.
 * They are made deterministic together, and written as contents of JSON strings. */
#ifndef BMC_STRING_SET_H
#define BMC_STRING_SET_H

#include "text/array_pool.h"
#include "text/grammar/regex.h"

enum { STRING_TERMS = 24 };

struct string_state;

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

void string_set_begin(struct string_set *set);
void string_set_release(struct string_set *set);

/* Adds a condition. Look-ahead at the beginning of the expression is supported. `use`: of enum
 * regex_use. `regex` is borrowed. */
void string_set_add(struct string_set *set, const char *regex, unsigned use, bool negated);

/* Leaves out strings. */
void string_set_exclude(struct string_set *set, const char *const *text, size_t n);

/* True if a string, UTF-8, is in the set. */
bool string_set_has(struct string_set *set, const char *text, size_t len);

/* The contents of JSON strings that are in the set. If there would be too many states, long strings are left out;
 * fails if there are too many in spite of that. */
expr_id string_set_json(struct string_set *set, struct json_grammar *json);

#endif
