/* The syntax tree of a template. */
#pragma once

#include "text/jinja/jinja_lexer.h"
#include "text/jinja/jinja_value.h"

enum jn_kind {
    /* expressions: operands are a, b, c and `list` */
    JN_CONST,   /* value */
    JN_NAME,    /* name */
    JN_LIST,    /* list */
    JN_TUPLE,   /* list */
    JN_DICT,    /* list: key, value, key, value .. */
    JN_NOT,     /* a */
    JN_SIGN,    /* op ? +a : -a */
    JN_BINARY,  /* a op b: enum jv_op */
    JN_AND,     /* a, b */
    JN_OR,      /* a, b */
    JN_CONCAT,  /* list */
    JN_COMPARE, /* a, then comparisons: op of each node of `list`, its operand in a */
    JN_COND,    /* a: condition, b: if true, c: else, or NULL */
    JN_ATTR,    /* a.name */
    JN_ITEM,    /* a[b] */
    JN_SLICE,   /* a[list 0 : list 1 : list 2]; NULL: not given */
    JN_CALL,    /* a(args) */
    JN_FILTER,  /* a | name(args); a is NULL in a filter block */
    JN_TEST,    /* a is name(args); op: negated */
    JN_STAR,    /* *a among arguments */
    /* statements: blocks are `body` and `other` */
    JN_TEXT,         /* value */
    JN_PRINT,        /* a */
    JN_IF,           /* a, body, other */
    JN_FOR,          /* a: target, b: iterated, c: condition or NULL, body, other */
    JN_SET,          /* a: target, b */
    JN_SET_BLOCK,    /* a: target, b: filters or NULL, body */
    JN_MACRO,        /* name, list: parameters (names), defaults: those of the last ones, body */
    JN_CALL_BLOCK,   /* a: the call; the rest as of a macro */
    JN_FILTER_BLOCK, /* b: filters, body */
    JN_WITH,         /* list: target, value, .. ; body */
    JN_GENERATION,   /* body */
    JN_BREAK,
    JN_CONTINUE,
};

enum jn_compare { JN_EQ, JN_NE, JN_LT, JN_LE, JN_GT, JN_GE, JN_IN, JN_NOT_IN };

/* What a macro's body uses of what is passed to it implicitly. */
enum jn_uses { JN_VARARGS = 1, JN_KWARGS = 2, JN_CALLER = 4 };

struct jn_list {
    struct jn **item;
    size_t n, cap;
};

struct jn_named {
    const struct js *name; /* NULL: **value */
    struct jn *value;
};

struct jn {
    enum jn_kind kind;
    int op;
    size_t pos; /* offset in the source */
    struct jn *a, *b, *c;
    const struct js *name;
    struct jv value;
    struct jn_list list, defaults;
    struct jn_named *named;
    size_t n_named, cap_named;
    struct jn_list body, other;
    unsigned uses;
};

/* Ends parsing or rendering because a node's filter or test is not known. */
_Noreturn void jn_fail_unknown(struct jinja_state *j, const struct jn *node);

/* Parses j->source: the statements of the template. */
struct jn_list jinja_statements(struct jinja_state *j);
