/* Evaluation of expressions. */
#include "text/jinja/jinja_eval.h"

#include <string.h>

#include "text/jinja_functions/jinja_access.h"
#include "text/jinja_values/jinja_arith.h"
#include "text/jinja_functions/jinja_filters.h"
#include "text/jinja_functions/jinja_globals.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja/jinja_cursor.h"
#include "text/jinja_values/jinja_repr.h"
#include "text/jinja_functions/jinja_tests.h"

/* ---- variables ---- */

struct jx_scope *jx_scope_new(struct jx *x, struct jx_scope *parent)
{
    struct jx_scope *scope = jinja_zalloc(x->j, 1, sizeof *scope);
    scope->parent = parent;
    return scope;
}

/* Counts the work of looking for a name among n others. */
static void touch_names(struct jx *x, size_t n, const struct js *name)
{
    jinja_touch(x->j, n * (2 + name->len / 4));
}

void jx_set(struct jx *x, struct jx_scope *scope, const struct js *name, struct jv value)
{
    touch_names(x, scope->n, name);
    for (size_t i = 0; i < scope->n; i++)
        if (js_equal(scope->var[i].name, name)) {
            scope->var[i].value = value;
            return;
        }
    scope->var = jinja_grow(x->j, scope->var, &scope->cap, scope->n, sizeof *scope->var);
    scope->var[scope->n++] = (struct jx_var){name, value};
}

static struct jv look_up(struct jx *x, const struct js *name)
{
    for (const struct jx_scope *scope = x->scope; scope; scope = scope->parent) {
        touch_names(x, scope->n, name);
        for (size_t i = 0; i < scope->n; i++)
            if (js_equal(scope->var[i].name, name))
                return scope->var[i].value;
    }
    const struct jinja_builtin *global = jinja_global(name);
    if (global)
        return (struct jv){.kind = JV_FUNCTION, .builtin = global};
    return jv_undefined(name, JV_ABSENT);
}

/* ---- calls ---- */

static void push_named(struct jx *x, struct jv_args *args, size_t *cap, const struct js *name,
                       struct jv value)
{
    touch_names(x, args->n_named, name);
    for (size_t i = 0; i < args->n_named; i++)
        if (js_equal(args->named[i].name, name))
            jinja_fail(x->j, "two values are given for \"%.*s\"", (int)size_min(name->len, 60),
                       name->text);
    args->named = jinja_grow(x->j, args->named, cap, args->n_named, sizeof *args->named);
    args->named[args->n_named++] = (struct jv_named){name, value};
}

/* The values of a node's arguments. */
static struct jv_args arguments(struct jx *x, const struct jn *node)
{
    struct jv_items list = {0};
    struct jv_args args = {NULL, 0, NULL, 0};
    size_t cap = 0;
    for (size_t i = 0; i < node->list.n; i++) {
        const struct jn *one = node->list.item[i];
        if (one->kind != JN_STAR) {
            jv_push(x->j, &list, jx_eval(x, one));
            continue;
        }
        const struct jv_list *items = jv_items_of(x->j, jx_eval(x, one->a));
        for (size_t k = 0; k < items->n; k++)
            jv_push(x->j, &list, items->item[k]);
    }
    for (size_t i = 0; i < node->n_named; i++) {
        const struct jv value = jx_eval(x, node->named[i].value);
        if (node->named[i].name) {
            push_named(x, &args, &cap, node->named[i].name, value);
            continue;
        }
        if (value.kind != JV_DICT)
            jinja_fail(x->j, "** needs a dict, not a value of type %s", jv_type(value));
        for (size_t k = 0; k < value.dict->n; k++) {
            if (value.dict->entry[k].key.kind != JV_STRING)
                jinja_fail(x->j, "** needs a dict whose keys are strings");
            push_named(x, &args, &cap, value.dict->entry[k].key.s, value.dict->entry[k].value);
        }
    }
    args.arg = list.item;
    args.n = list.n;
    return args;
}

/* Takes an argument by name; absent if it is not given. Taken ones lose their name. */
static struct jv take_named(struct jx *x, struct jv_args *args, const struct js *name)
{
    touch_names(x, args->n_named, name);
    for (size_t i = 0; i < args->n_named; i++)
        if (args->named[i].name && js_equal(args->named[i].name, name)) {
            args->named[i].name = NULL;
            return args->named[i].value;
        }
    return jv_absent();
}

/* Sets the variables that a macro's body may use besides its parameters, and refuses arguments that
 * are left. */
static void bind_rest(struct jx *x, const struct jn *node, struct jv_args *args, struct jx_scope *scope)
{
    const size_t n = node->list.n;
    const struct js *caller = js_literal(x->j, "caller");
    struct jv_items more = {0};
    const struct jv kwargs = jv_dict_new(x->j);
    if (node->uses & JN_CALLER) {
        const struct jv given = take_named(x, args, caller);
        jx_set(x, scope, caller, given.kind == JV_ABSENT ? jv_undefined(caller, JV_ABSENT) : given);
    }
    for (size_t i = 0; i < args->n_named; i++) {
        const struct js *name = args->named[i].name;
        if (name && !(node->uses & JN_KWARGS))
            jinja_fail(x->j, "the macro \"%.*s\" does not take an argument \"%.*s\"",
                       (int)size_min(node->name->len, 60), node->name->text,
                       (int)size_min(name->len, 60), name->text);
        if (name)
            jv_dict_set(x->j, kwargs.dict, jv_string(name), args->named[i].value);
    }
    if (node->uses & JN_KWARGS)
        jx_set(x, scope, js_literal(x->j, "kwargs"), kwargs);
    if (args->n > n && !(node->uses & JN_VARARGS))
        jinja_fail(x->j, "the macro \"%.*s\" takes %zu arguments, not %zu",
                   (int)size_min(node->name->len, 60), node->name->text, n, args->n);
    for (size_t i = n; i < args->n; i++)
        jv_push(x->j, &more, args->arg[i]);
    if (node->uses & JN_VARARGS)
        jx_set(x, scope, js_literal(x->j, "varargs"), jv_items_done(x->j, &more, JV_TUPLE));
}

static struct jv call_macro(struct jx *x, const struct jinja_macro *macro, struct jv_args args)
{
    const struct jn *node = macro->node;
    const size_t n = node->list.n, first_default = n - node->defaults.n;
    struct jx_scope *before = x->scope, *scope = jx_scope_new(x, macro->scope);
    const size_t pos = x->j->pos;
    struct jv *value = jinja_alloc(x->j, n, sizeof *value);
    for (size_t i = 0; i < n; i++)
        value[i] = i < args.n ? args.arg[i] : take_named(x, &args, node->list.item[i]->name);
    bind_rest(x, node, &args, scope);
    x->scope = scope;
    for (size_t i = 0; i < n; i++) {
        const struct js *name = node->list.item[i]->name;
        if (value[i].kind == JV_ABSENT)
            value[i] = i >= first_default ? jx_eval(x, node->defaults.item[i - first_default])
                                          : jv_undefined(name, JV_ABSENT);
        jx_set(x, scope, name, value[i]);
    }
    x->scope = before;
    const struct jv text = jv_string(x->run(x, node, scope));
    x->j->pos = pos;
    return text;
}

static struct jv call_joiner(struct jv_list *joiner)
{
    return joiner->next++ ? joiner->item[0] : jv_string(&js_empty);
}

static struct jv call_loop(struct jx *x, const struct jv_loop *loop, struct jv_args args)
{
    const size_t pos = x->j->pos;
    if (!loop->statement)
        jinja_fail(x->j, "a loop that is called must be recursive");
    if (args.n != 1 || args.n_named)
        jinja_fail(x->j, "loop() takes what is iterated over, and nothing else");
    const struct jv text = jv_string(x->run_again(x, loop, args.arg[0]));
    x->j->pos = pos;
    return text;
}

static struct jv call(struct jx *x, struct jv what, struct jv_args args)
{
    switch (what.kind) {
    case JV_MACRO: return call_macro(x, what.macro, args);
    case JV_FUNCTION: return jinja_builtin_call(x->j, what.builtin, jv_absent(), &args);
    case JV_METHOD: return jinja_builtin_call(x->j, what.method->builtin, what.method->self, &args);
    case JV_LOOP: return call_loop(x, what.loop, args);
    case JV_JOINER: return call_joiner(what.list);
    case JV_UNDEFINED: jv_fail_undefined(x->j, what);
    default: jinja_fail(x->j, "a value of type %s cannot be called", jv_type(what));
    }
}

struct jv jx_call_with(struct jx *x, const struct jn *node, struct jv caller)
{
    const struct jv what = jx_eval(x, node->a);
    struct jv_args args = arguments(x, node);
    size_t cap = args.n_named;
    x->j->pos = node->pos;
    push_named(x, &args, &cap, js_literal(x->j, "caller"), caller);
    return call(x, what, args);
}

/* ---- operators ---- */

static bool compare(struct jx *x, enum jn_compare op, struct jv a, struct jv b)
{
    switch (op) {
    case JN_EQ: return jv_equal(x->j, a, b);
    case JN_NE: return !jv_equal(x->j, a, b);
    case JN_LT: return jv_order(x->j, a, b) < 0;
    case JN_LE: return jv_order(x->j, a, b) <= 0;
    case JN_GT: return jv_order(x->j, a, b) > 0;
    case JN_GE: return jv_order(x->j, a, b) >= 0;
    case JN_IN: return jv_contains(x->j, b, a);
    case JN_NOT_IN: return !jv_contains(x->j, b, a);
    }
    return false;
}

static struct jv comparisons(struct jx *x, const struct jn *node)
{
    struct jv left = jx_eval(x, node->a);
    for (size_t i = 0; i < node->list.n; i++) {
        const struct jn *next = node->list.item[i];
        const struct jv right = jx_eval(x, next->a);
        x->j->pos = next->pos;
        if (!compare(x, (enum jn_compare)next->op, left, right))
            return jv_bool(false);
        left = right;
    }
    return jv_bool(true);
}

static struct jv logical(struct jx *x, const struct jn *node)
{
    for (;;) { /* chains lean to the right */
        const struct jv left = jx_eval(x, node->a);
        if (jv_truth(left) == (node->kind == JN_OR))
            return left;
        if (node->b->kind != node->kind)
            return jx_eval(x, node->b);
        node = node->b;
    }
}

static struct jv concatenate(struct jx *x, const struct jn *node)
{
    struct js_builder b = {.j = x->j};
    for (size_t i = 0; i < node->list.n; i++)
        jv_add_str(&b, jx_eval(x, node->list.item[i]));
    return jv_string(js_done(&b));
}

static struct jv listed(struct jx *x, const struct jn *node)
{
    const struct jv list = jv_listed(x->j, node->kind == JN_LIST ? JV_LIST : JV_TUPLE, node->list.n);
    for (size_t i = 0; i < node->list.n; i++)
        list.list->item[i] = jx_eval(x, node->list.item[i]);
    return list;
}

static struct jv dict(struct jx *x, const struct jn *node)
{
    const struct jv out = jv_dict_new(x->j);
    for (size_t i = 0; i + 1 < node->list.n; i += 2) {
        const struct jv key = jx_eval(x, node->list.item[i]);
        const struct jv value = jx_eval(x, node->list.item[i + 1]);
        x->j->pos = node->pos;
        jv_dict_set(x->j, out.dict, key, value);
    }
    return out;
}

static struct jv slice(struct jx *x, const struct jn *node)
{
    struct jv bound[3];
    const struct jv of = jx_eval(x, node->a);
    for (size_t i = 0; i < 3; i++)
        bound[i] = node->list.item[i] ? jx_eval(x, node->list.item[i]) : jv_none();
    x->j->pos = node->pos;
    return jv_slice(x->j, of, bound[0], bound[1], bound[2]);
}

static struct jv binary(struct jx *x, const struct jn *node)
{
    const struct jv a = jx_eval(x, node->a), b = jx_eval(x, node->b);
    x->j->pos = node->pos;
    return jv_arith(x->j, (enum jv_op)node->op, a, b);
}

static struct jv apply_filter(struct jx *x, const struct jn *node, struct jv value)
{
    const struct jinja_builtin *filter = jinja_filter(node->name);
    const struct jv_args args = arguments(x, node);
    x->j->pos = node->pos;
    if (!filter)
        jn_fail_unknown(x->j, node);
    return jinja_builtin_call(x->j, filter, value, &args);
}

struct jv jx_filter(struct jx *x, const struct jn *filters, struct jv text)
{
    if (!filters)
        return text;
    jinja_enter(x->j);
    const struct jv value = apply_filter(x, filters, jx_filter(x, filters->a, text));
    jinja_leave(x->j);
    return value;
}

static struct jv test(struct jx *x, const struct jn *node)
{
    const struct jinja_builtin *known = jinja_test(node->name);
    const struct jv value = jx_eval(x, node->a);
    const struct jv_args args = arguments(x, node);
    x->j->pos = node->pos;
    if (!known)
        jn_fail_unknown(x->j, node);
    return jv_bool(jv_truth(jinja_builtin_call(x->j, known, value, &args)) != (node->op != 0));
}

static struct jv call_node(struct jx *x, const struct jn *node)
{
    const struct jv what = jx_eval(x, node->a);
    const struct jv_args args = arguments(x, node);
    x->j->pos = node->pos;
    return call(x, what, args);
}

static struct jv item(struct jx *x, const struct jn *node)
{
    const struct jv of = jx_eval(x, node->a);
    const struct jv key = node->kind == JN_ATTR ? jv_none() : jx_eval(x, node->b);
    x->j->pos = node->pos;
    return node->kind == JN_ATTR ? jv_attribute(x->j, of, node->name) : jv_item(x->j, of, key);
}

static struct jv sign(struct jx *x, const struct jn *node)
{
    const struct jv value = jx_eval(x, node->a);
    x->j->pos = node->pos;
    return jv_negate(x->j, value, node->op);
}

static struct jv choose(struct jx *x, const struct jn *node)
{
    if (jv_truth(jx_eval(x, node->a)))
        return jx_eval(x, node->b);
    return node->c ? jx_eval(x, node->c) : jv_undefined(NULL, JV_ABSENT);
}

static struct jv evaluate(struct jx *x, const struct jn *node)
{
    switch (node->kind) {
    case JN_CONST: return node->value;
    case JN_NAME: return look_up(x, node->name);
    case JN_LIST:
    case JN_TUPLE: return listed(x, node);
    case JN_DICT: return dict(x, node);
    case JN_NOT: return jv_bool(!jv_truth(jx_eval(x, node->a)));
    case JN_SIGN: return sign(x, node);
    case JN_BINARY: return binary(x, node);
    case JN_AND:
    case JN_OR: return logical(x, node);
    case JN_CONCAT: return concatenate(x, node);
    case JN_COMPARE: return comparisons(x, node);
    case JN_COND: return choose(x, node);
    case JN_ATTR:
    case JN_ITEM: return item(x, node);
    case JN_SLICE: return slice(x, node);
    case JN_CALL: return call_node(x, node);
    case JN_FILTER: return apply_filter(x, node, jx_eval(x, node->a));
    case JN_TEST: return test(x, node);
    default: return jv_none(); /* statements are not evaluated */
    }
}

struct jv jx_eval(struct jx *x, const struct jn *node)
{
    jinja_work(x->j, 1);
    jinja_enter(x->j);
    x->j->pos = node->pos;
    const struct jv value = evaluate(x, node);
    jinja_leave(x->j);
    return value;
}
