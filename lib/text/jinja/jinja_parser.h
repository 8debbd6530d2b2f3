/* Parser of expressions. */
#ifndef BMC_JINJA_PARSER_H
#define BMC_JINJA_PARSER_H

#include "text/jinja/jinja_cursor.h"

/* An expression; `conditional`: it may be "a if b else c". */
struct jn *jp_expression(struct jinja_parser *p, bool conditional);

/* An expression, or several separated by commas, which are a tuple. */
struct jn *jp_tuple(struct jinja_parser *p, bool conditional);

/* Filters after an expression, each with its bar; `inner` may be NULL. jp_filter_chain(): the bar of
 * the first was read or is not written. */
struct jn *jp_filter_chain(struct jinja_parser *p, struct jn *inner);

/* A name, or names in brackets or separated by commas. */
struct jn *jp_target(struct jinja_parser *p);

/* Appends the arguments of a call, behind its opening bracket, to a node. */
void jp_arguments(struct jinja_parser *p, struct jn *node);

#endif
