/* Evaluation of expressions. */
#ifndef BMC_JINJA_EVAL_H
#define BMC_JINJA_EVAL_H

#include "text/jinja/jinja_ast.h"
#include "text/jinja_functions/jinja_builtin.h"

struct jx_var {
    const struct js *name;
    struct jv value;
};

/* Variables of a block; those of the blocks around it are seen through `parent`. */
struct jx_scope {
    struct jx_scope *parent;
    struct jx_var *var;
    size_t n, cap;
};

struct jinja_macro {
    const struct jn *node;  /* JN_MACRO, JN_CALL_BLOCK */
    struct jx_scope *scope; /* where it was defined */
};

/* State of a rendering. */
struct jx {
    struct jinja_state *j;
    struct jx_scope *scope;
    struct js_builder *out;
    /* Runs a macro with its variables set in `scope`; the text is its value. */
    const struct js *(*run)(struct jx *x, const struct jn *macro, struct jx_scope *scope);
    /* Runs a recursive loop over other items, one level deeper; the text is the call's value. */
    const struct js *(*run_again)(struct jx *x, const struct jv_loop *loop, struct jv over);
};

struct jx_scope *jx_scope_new(struct jx *x, struct jx_scope *parent);
void jx_set(struct jx *x, struct jx_scope *scope, const struct js *name, struct jv value);

struct jv jx_eval(struct jx *x, const struct jn *node);

/* Applies the filters of a filter block, or a block that sets a variable, to its text. */
struct jv jx_filter(struct jx *x, const struct jn *filters, struct jv text);

/* Evaluates a call that is given a call block as its argument `caller`. */
struct jv jx_call_with(struct jx *x, const struct jn *call, struct jv caller);

#endif
