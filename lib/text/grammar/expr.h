/* Grammars as expressions: the common form of GBNF grammars, regular expressions, JSON Schemas and
 * lists of choices. Rules refer to each other by number, so that grammars can be recursive.
 *
 * Functions that add to a grammar never fail: the first error (no memory, or too large) is kept in
 * grammar.why, and they return EXPR_NONE from then on. Callers check grammar.failed at the end. */
#pragma once

#include "base/mem.h"

/* A range of code points, both ends included. */
struct code_range {
    uint32_t first, last;
};

enum { CODE_MAX = 0x10ffff };

enum expr_kind {
    EXPR_IS_NONE,   /* matches nothing */
    EXPR_IS_EMPTY,  /* matches the empty text */
    EXPR_IS_BYTES,  /* bytes[a .. a + b) */
    EXPR_IS_CLASS,  /* one character of range[a .. a + b), in UTF-8 */
    EXPR_IS_SEQ,    /* list[a .. a + b), one after the other */
    EXPR_IS_ALT,    /* one of list[a .. a + b) */
    EXPR_IS_REPEAT, /* expression a, min to max times; EXPR_MANY: no limit */
    EXPR_IS_RULE,   /* rule a */
};

#define EXPR_MANY UINT32_MAX

/* Index of an expression; these two are in every grammar. */
typedef uint32_t expr_id;
enum { EXPR_NONE, EXPR_EMPTY };

struct expr {
    enum expr_kind kind;
    uint32_t a, b, min, max;
};

struct grammar_rule {
    expr_id body;
    size_t name; /* offset of its name in grammar.names, for messages */
};

struct grammar {
    struct expr *expr;
    size_t n_exprs, exprs_cap;
    expr_id *list;
    size_t n_list, list_cap;
    struct code_range *range;
    size_t n_ranges, ranges_cap;
    struct buf bytes, names;
    struct grammar_rule *rule;
    size_t n_rules, rules_cap;
    uint32_t root;   /* the rule that whole texts match */
    uint32_t *token; /* [n_tokens]: those of expr_token() */
    size_t n_tokens, tokens_cap;
    bool flat; /* long repetitions get no rules: the expressions are all there is */
    bool failed;
    struct err why;
    struct err note; /* what its source asks for and the grammar does not do; empty: nothing */
};

void grammar_begin(struct grammar *grammar);
void grammar_release(struct grammar *grammar);

/* Keeps the first error; returns EXPR_NONE. */
expr_id grammar_fail(struct grammar *grammar, const char *format, ...) PRINTF_LIKE(2, 3);
expr_id grammar_no_memory(struct grammar *grammar, const char *what);

expr_id expr_bytes(struct grammar *grammar, const void *bytes, size_t len);
expr_id expr_text(struct grammar *grammar, const char *text);

/* A token itself, whatever its text: for special ones, which no text has. Automata read it as EXPR_TOKEN_BYTES bytes that
 * are not UTF-8, expr_token_bytes(). */
enum { EXPR_TOKEN_BYTES = 9 };
expr_id expr_token(struct grammar *grammar, uint32_t id);
void expr_token_bytes(uint32_t id, char bytes[EXPR_TOKEN_BYTES + 1]);

/* Ranges must be ascending and disjoint. */
expr_id expr_class(struct grammar *grammar, const struct code_range *range, size_t n);
expr_id expr_range(struct grammar *grammar, uint32_t first, uint32_t last);
expr_id expr_seq(struct grammar *grammar, const expr_id *list, size_t n);
expr_id expr_alt(struct grammar *grammar, const expr_id *list, size_t n);
expr_id expr_repeat(struct grammar *grammar, expr_id id, uint32_t min, uint32_t max);
expr_id expr_rule(struct grammar *grammar, uint32_t rule);
expr_id expr_as_rule(struct grammar *grammar, expr_id id, const char *name); /* for several uses */

#define EXPR_SEQ(grammar, ...)                                                                         \
    expr_seq(grammar, (const expr_id[]){__VA_ARGS__},                                                  \
             sizeof((const expr_id[]){__VA_ARGS__}) / sizeof(expr_id))
#define EXPR_ALT(grammar, ...)                                                                         \
    expr_alt(grammar, (const expr_id[]){__VA_ARGS__},                                                  \
             sizeof((const expr_id[]){__VA_ARGS__}) / sizeof(expr_id))
#define EXPR_OPTIONAL(grammar, id) expr_repeat(grammar, id, 0, 1)

/* Adds a rule without a body, which matches nothing until it is set; returns its number. */
uint32_t grammar_add_rule(struct grammar *grammar, const char *name, size_t len);
void grammar_set_rule(struct grammar *grammar, uint32_t rule, expr_id body);
const char *grammar_rule_name(const struct grammar *grammar, uint32_t rule);

/* A growing list of expressions, for expr_seq() and expr_alt(). */
struct expr_list {
    expr_id *id;
    size_t n, cap;
};

void expr_list_add(struct grammar *grammar, struct expr_list *list, expr_id id);
void expr_list_release(struct expr_list *list);

/* All of a list, one after the other; one of it. They release it. */
expr_id expr_list_seq(struct grammar *grammar, struct expr_list *list);
expr_id expr_list_alt(struct grammar *grammar, struct expr_list *list);

/* Ranges in any order until char_class_sort(). Errors are kept in the grammar. */
struct char_class {
    struct code_range *range;
    size_t n, cap;
};

void char_class_add(struct grammar *grammar, struct char_class *set, uint32_t first, uint32_t last);
void char_class_sort(struct char_class *set); /* ascending, disjoint */
void char_class_negate(struct grammar *grammar, struct char_class *set);
bool char_class_has(const struct char_class *set, uint32_t code); /* of a sorted set */
void char_class_release(struct char_class *set);

/* Adds what is in both a[n_a] and b[n_b]. */
void char_class_meet(struct grammar *grammar, struct char_class *set, const struct code_range *a,
                     size_t n_a, const struct code_range *b, size_t n_b);

/* A character of the set, which is released. */
expr_id char_class_expr(struct grammar *grammar, struct char_class *set);

/* Adds what \d, \w or \s stand for: ASCII only; or, if `wide`, all that any common dialect of regular
 * expressions takes them for, so that a negation holds in all of them. */
void char_class_add_shorthand(struct grammar *grammar, struct char_class *set, char letter, bool wide);

/* Zeros at first. Errors are kept in the grammar. */
struct expr_texts {
    struct buf bytes; /* all texts, one after the other */
    size_t *end;      /* [n] */
    size_t n, cap;
};

/* Adds what was appended to texts->bytes since the last text. */
void expr_texts_end(struct grammar *grammar, struct expr_texts *texts);

/* One of the texts; releases them. */
expr_id expr_texts(struct grammar *grammar, struct expr_texts *texts);

/* The texts of an expression whose first character is in a sorted set. Repetitions of what may be empty lose texts. */
expr_id expr_begin(struct grammar *grammar, expr_id id, const struct char_class *set);

/* What follows an ASCII character at the start of the texts that begin with it. */
expr_id expr_after(struct grammar *grammar, expr_id id, char first);
