/* Reads the tokens of a template one by one, and makes nodes of its syntax tree. */
#ifndef BMC_JINJA_CURSOR_H
#define BMC_JINJA_CURSOR_H

#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_lexer.h"

struct jinja_parser {
    struct jinja_state *j;
    const struct jt *at; /* the next token */
    unsigned uses;       /* enum jn_uses of the macro that is being parsed */
    /* The first unknown filter or test of the tag. It is an error at the end of the tag; in branches
     * of conditions it is one only when it is evaluated. */
    const struct jn *unknown;
    bool in_branch;
    unsigned loops; /* that break and continue may end */
};

struct jn *jp_node(struct jinja_parser *p, enum jn_kind kind);
void jp_push(struct jinja_parser *p, struct jn_list *list, struct jn *node);

bool jp_is_sign(const struct jinja_parser *p, const char *sign);
bool jp_is_name(const struct jinja_parser *p, const char *name);

/* Read a token if it is next. */
bool jp_sign(struct jinja_parser *p, const char *sign);
bool jp_name(struct jinja_parser *p, const char *name);

/* Read a token that must be next. */
void jp_expect_sign(struct jinja_parser *p, const char *sign);
void jp_expect_name(struct jinja_parser *p, const char *name);
void jp_expect_close(struct jinja_parser *p);
const struct js *jp_any_name(struct jinja_parser *p);

_Noreturn void jp_unexpected(struct jinja_parser *p, const char *expected);

/* Ends parsing or rendering because a node's filter or test is not known. */
_Noreturn void jn_fail_unknown(struct jinja_state *j, const struct jn *node);

#endif
