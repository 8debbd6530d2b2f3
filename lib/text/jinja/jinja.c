/* Templates: finding names, evaluating expressions, executing statements, and rendering as a whole. */
#include "text/jinja/jinja.h"

#include "text/jinja/jinja_filters.h"
#include "text/jinja/jinja_methods.h"
#include "text/jinja/jinja_parser.h"
#include "text/jinja/jinja_text.h"
#include "text/jinja/jinja_value.h"
#include "text/utf8.h"

/* ---- finds the names in a template ---- */

struct jx_var {
    const struct js *name;
    struct jv value;
};

/* State of a rendering. */
struct jx {
    struct jinja_state *j;
    struct jx_scope *scope;
    struct js_builder *out;
};

static struct jv jx_eval(struct jx *x, const struct jn *node);

/* Runs a macro with its variables set in `scope`; the text is its value. */
static const struct js *run_macro(struct jx *x, const struct jn *macro, struct jx_scope *scope);

enum { MOST_DEPTH = 1200 }; /* nodes nested deeper are not evaluated either */

/* Names that are being found: all of them, or those that are tested for none. */
struct name_search {
    json_t *names;
    bool tested, failed;
};

static void add_found(struct name_search *s, const struct js *name)
{
    if (name && utf8_valid(name->text, name->len) == name->len &&
        json_object_setn_new(s->names, name->text, name->len, json_boolean(s->tested)) < 0)
        s->failed = true;
}

static const struct js *constant(const struct jn *node)
{
    return node && node->kind == JN_CONST && node->value.kind == JV_STRING ? node->value.s : NULL;
}

/* What the value of an expression is called: NAME, x.NAME, x["NAME"]; NULL: nothing. */
static const struct js *name_of_value(const struct jn *node)
{
    while (node->kind == JN_FILTER && node->a)
        node = node->a;
    return node->kind == JN_ITEM                            ? constant(node->b)
           : node->kind == JN_NAME || node->kind == JN_ATTR ? node->name
                                                            : NULL;
}

static bool is_none(const struct jn *node)
{
    return node->kind == JN_CONST && node->value.kind == JV_NONE;
}

static void add_tested(struct name_search *s, const struct jn *node)
{
    if (node->kind == JN_TEST && js_is(node->name, "none"))
        add_found(s, name_of_value(node->a));
    const struct jn *next = node->kind == JN_COMPARE && node->list.n == 1 ? node->list.item[0] : NULL;
    if (!next || (next->op != JN_EQ && next->op != JN_NE))
        return;
    if (is_none(next->a))
        add_found(s, name_of_value(node->a));
    if (is_none(node->a))
        add_found(s, name_of_value(next->a));
}

static void in_list(struct name_search *s, const struct jn_list *list, unsigned depth);

static void in_node(struct name_search *s, const struct jn *node, unsigned depth)
{
    if (!node || depth > MOST_DEPTH)
        return;
    if (s->tested)
        add_tested(s, node);
    else
        add_found(s, node->kind == JN_NAME || node->kind == JN_ATTR ? node->name : constant(node));
    in_node(s, node->a, depth + 1);
    in_node(s, node->b, depth + 1);
    in_node(s, node->c, depth + 1);
    for (size_t i = 0; i < node->n_named; i++)
        in_node(s, node->named[i].value, depth + 1);
    in_list(s, &node->list, depth + 1);
    in_list(s, &node->defaults, depth + 1);
    in_list(s, &node->body, depth + 1);
    in_list(s, &node->other, depth + 1);
}

static void in_list(struct name_search *s, const struct jn_list *list, unsigned depth)
{
    for (size_t i = 0; i < list->n; i++)
        in_node(s, list->item[i], depth);
}

/* The names of variables, attributes and items that a template reads, as an object: true for those that it tests for
 * none, x.NAME is none, x["NAME"] != none. NULL: out of memory. */
static json_t *jn_names(const struct jn_list *template)
{
    struct name_search s = {.names = json_object()};
    in_list(&s, template, 0);
    s.tested = true; /* over what was found */
    in_list(&s, template, 0);
    if (!s.failed)
        return s.names;
    json_decref(s.names);
    return NULL;
}

/* ---- evaluation of expressions ---- */

/* ---- variables ---- */

static struct jx_scope *jx_scope_new(struct jx *x, struct jx_scope *parent)
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

static void jx_set(struct jx *x, struct jx_scope *scope, const struct js *name, struct jv value)
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
    const struct jinja_builtin *global = jinja_named(JINJA_GLOBALS, name);
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
            jinja_fail(x->j, "two values are given for \"%.*s\"", JS_SHORT(name));
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
                       JS_SHORT(node->name), JS_SHORT(name));
        if (name)
            jv_dict_set(x->j, kwargs.dict, jv_string(name), args->named[i].value);
    }
    if (node->uses & JN_KWARGS)
        jx_set(x, scope, js_literal(x->j, "kwargs"), kwargs);
    if (args->n > n && !(node->uses & JN_VARARGS))
        jinja_fail(x->j, "the macro \"%.*s\" takes %zu arguments, not %zu", JS_SHORT(node->name), n,
                   args->n);
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
    const struct jv text = jv_string(run_macro(x, node, scope));
    x->j->pos = pos;
    return text;
}

static struct jv call_value(struct jx *x, struct jv what, struct jv_args args)
{
    switch (what.kind) {
    case JV_MACRO: return call_macro(x, what.macro, args);
    case JV_FUNCTION: return jinja_builtin_call(x->j, what.builtin, jv_absent(), &args);
    case JV_METHOD: return jinja_builtin_call(x->j, what.method->builtin, what.method->self, &args);
    case JV_UNDEFINED: jv_fail_undefined(x->j, what);
    default: jinja_fail(x->j, "a value of type %s cannot be called", jv_type(what));
    }
}

/* Evaluates a call that is given a call block as its argument `caller`. */
static struct jv jx_call_with(struct jx *x, const struct jn *node, struct jv caller)
{
    const struct jv what = jx_eval(x, node->a);
    struct jv_args args = arguments(x, node);
    size_t cap = args.n_named;
    x->j->pos = node->pos;
    push_named(x, &args, &cap, js_literal(x->j, "caller"), caller);
    return call_value(x, what, args);
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
    const struct jinja_builtin *filter = jinja_named(JINJA_FILTERS, node->name);
    const struct jv_args args = arguments(x, node);
    x->j->pos = node->pos;
    if (!filter)
        jn_fail_unknown(x->j, node);
    return jinja_builtin_call(x->j, filter, value, &args);
}

/* Applies the filters of a filter block, or a block that sets a variable, to its text. */
static struct jv jx_filter(struct jx *x, const struct jn *filters, struct jv text)
{
    if (!filters)
        return text;
    jinja_enter(x->j);
    const struct jv value = apply_filter(x, filters, jx_filter(x, filters->a, text));
    jinja_leave(x->j);
    return value;
}

static struct jv run_test(struct jx *x, const struct jn *node)
{
    const struct jinja_builtin *known = jinja_named(JINJA_TESTS, node->name);
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
    return call_value(x, what, args);
}

static struct jv item_of_node(struct jx *x, const struct jn *node)
{
    const struct jv of = jx_eval(x, node->a);
    const struct jv key = node->kind == JN_ATTR ? jv_none() : jx_eval(x, node->b);
    x->j->pos = node->pos;
    return node->kind == JN_ATTR ? jv_attribute(x->j, of, node->name) : jv_item(x->j, of, key);
}

static struct jv with_sign(struct jx *x, const struct jn *node)
{
    const struct jv value = jx_eval(x, node->a);
    x->j->pos = node->pos;
    return jv_negate(x->j, value, node->op);
}

static struct jv eval_conditional(struct jx *x, const struct jn *node)
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
    case JN_SIGN: return with_sign(x, node);
    case JN_BINARY: return binary(x, node);
    case JN_AND:
    case JN_OR: return logical(x, node);
    case JN_CONCAT: return concatenate(x, node);
    case JN_COMPARE: return comparisons(x, node);
    case JN_COND: return eval_conditional(x, node);
    case JN_ATTR:
    case JN_ITEM: return item_of_node(x, node);
    case JN_SLICE: return slice(x, node);
    case JN_CALL: return call_node(x, node);
    case JN_FILTER: return apply_filter(x, node, jx_eval(x, node->a));
    case JN_TEST: return run_test(x, node);
    default: return jv_none(); /* statements are not evaluated */
    }
}

static struct jv jx_eval(struct jx *x, const struct jn *node)
{
    jinja_work(x->j, 1);
    jinja_enter(x->j);
    x->j->pos = node->pos;
    const struct jv value = evaluate(x, node);
    jinja_leave(x->j);
    return value;
}

/* ---- execution of statements ---- */

enum flow { GOES_ON, BREAKS, CONTINUES };

static enum flow run_block(struct jx *x, const struct jn_list *block);

/* The text that a block writes; it sets variables in `scope`. */
static const struct js *text_of(struct jx *x, const struct jn_list *block, struct jx_scope *scope)
{
    struct js_builder text = {.j = x->j}, *out = x->out;
    struct jx_scope *before = x->scope;
    x->out = &text;
    x->scope = scope;
    (void)run_block(x, block);
    x->out = out;
    x->scope = before;
    return js_done(&text);
}

static const struct js *run_macro(struct jx *x, const struct jn *macro, struct jx_scope *scope)
{
    jinja_enter(x->j);
    const struct js *text = text_of(x, &macro->body, scope);
    jinja_leave(x->j);
    return text;
}

/* Assigns to a name, to names of a tuple, or to a name of a namespace. */
static void assign(struct jx *x, struct jx_scope *scope, const struct jn *target, struct jv value)
{
    x->j->pos = target->pos;
    if (target->kind == JN_NAME) {
        jx_set(x, scope, target->name, value);
        return;
    }
    if (target->kind == JN_ATTR) {
        const struct jv space = jx_eval(x, target->a);
        if (space.kind != JV_NAMESPACE)
            jinja_fail(x->j, "\"%.*s\" is no namespace, so its names cannot be set",
                       JS_SHORT(target->a->name));
        if (target->name->text[0] == '_')
            jinja_fail(x->j, "names of a namespace cannot begin with an underscore");
        jv_dict_set(x->j, space.dict, jv_string(target->name), value);
        return;
    }
    const struct jv_list *items = jv_items_of(x->j, value);
    if (items->n != target->list.n)
        jinja_fail(x->j, "%zu values are assigned to %zu names", items->n, target->list.n);
    for (size_t i = 0; i < items->n; i++)
        assign(x, scope, target->list.item[i], items->item[i]);
}

/* An item that passed a loop's condition: if it was assigned to several names, a tuple. */
static struct jv unpacked(struct jx *x, const struct jn *target, struct jv item)
{
    if (target->kind != JN_TUPLE || item.kind == JV_TUPLE)
        return item;
    const struct jv_list *items = jv_items_of(x->j, item);
    return jv_copied(x->j, JV_TUPLE, items->item, items->n);
}

/* The items of a loop: those for which its condition holds. */
static const struct jv_list *loop_items(struct jx *x, const struct jn *node, struct jv over)
{
    x->j->pos = node->b->pos;
    const struct jv_list *items = jv_items_of(x->j, over);
    struct jv_items kept = {0};
    struct jx_scope *before = x->scope;
    if (!node->c)
        return items;
    x->scope = jx_scope_new(x, before);
    for (size_t i = 0; i < items->n; i++) {
        x->scope->n = 0;
        assign(x, x->scope, node->a, items->item[i]);
        if (jv_truth(jx_eval(x, node->c)))
            jv_push(x->j, &kept, unpacked(x, node->a, items->item[i]));
    }
    x->scope = before;
    return jv_items_done(x->j, &kept, JV_LIST).list;
}

static void run_for(struct jx *x, const struct jn *node)
{
    const struct jv_list *items = loop_items(x, node, jx_eval(x, node->b));
    struct jx_scope *before = x->scope;
    const struct js *name = js_literal(x->j, "loop");
    struct jv_loop *loop = jinja_zalloc(x->j, 1, sizeof *loop);
    loop->item = items->item;
    loop->n = items->n;
    x->scope = jx_scope_new(x, before);
    for (size_t i = 0; i < items->n; i++) {
        jinja_work(x->j, 1);
        loop->index0 = i;
        x->scope->n = 0;
        jx_set(x, x->scope, name, (struct jv){.kind = JV_LOOP, .loop = loop});
        assign(x, x->scope, node->a, items->item[i]);
        if (run_block(x, &node->body) == BREAKS)
            break;
    }
    if (!items->n) {
        x->scope->n = 0;
        (void)run_block(x, &node->other);
    }
    x->scope = before;
}

static enum flow run_with(struct jx *x, const struct jn *node)
{
    struct jx_scope *before = x->scope, *scope = jx_scope_new(x, before);
    for (size_t i = 0; i + 1 < node->list.n; i += 2)
        assign(x, scope, node->list.item[i], jx_eval(x, node->list.item[i + 1]));
    x->scope = scope;
    const enum flow flow = run_block(x, &node->body);
    x->scope = before;
    return flow;
}

static struct jv new_macro(struct jx *x, const struct jn *node)
{
    struct jinja_macro *macro = jinja_alloc(x->j, 1, sizeof *macro);
    *macro = (struct jinja_macro){node, x->scope};
    return (struct jv){.kind = JV_MACRO, .macro = macro};
}

static enum flow run_statement(struct jx *x, const struct jn *node)
{
    struct jx_scope *inner;
    switch (node->kind) {
    case JN_TEXT: js_add_str(x->out, node->value.s); break;
    case JN_PRINT: jv_add_str(x->out, jx_eval(x, node->a)); break;
    case JN_IF: return run_block(x, jv_truth(jx_eval(x, node->a)) ? &node->body : &node->other);
    case JN_FOR: run_for(x, node); break;
    case JN_SET: assign(x, x->scope, node->a, jx_eval(x, node->b)); break;
    case JN_SET_BLOCK:
        inner = jx_scope_new(x, x->scope);
        assign(x, x->scope, node->a, jx_filter(x, node->b, jv_string(text_of(x, &node->body, inner))));
        break;
    case JN_MACRO: jx_set(x, x->scope, node->name, new_macro(x, node)); break;
    case JN_CALL_BLOCK: jv_add_str(x->out, jx_call_with(x, node->a, new_macro(x, node))); break;
    case JN_FILTER_BLOCK:
        inner = jx_scope_new(x, x->scope);
        jv_add_str(x->out, jx_filter(x, node->b, jv_string(text_of(x, &node->body, inner))));
        break;
    case JN_WITH: return run_with(x, node);
    case JN_GENERATION: js_add_str(x->out, run_macro(x, node, jx_scope_new(x, x->scope))); break;
    case JN_BREAK: return BREAKS;
    case JN_CONTINUE: return CONTINUES;
    default: break; /* expressions are no statements */
    }
    return GOES_ON;
}

static enum flow run_block(struct jx *x, const struct jn_list *block)
{
    enum flow flow = GOES_ON;
    jinja_enter(x->j);
    for (size_t i = 0; i < block->n && flow == GOES_ON; i++) {
        jinja_work(x->j, 1);
        x->j->pos = block->item[i]->pos;
        flow = run_statement(x, block->item[i]);
    }
    jinja_leave(x->j);
    return flow;
}

/* Runs a template's statements with variables in `scope`; returns its text. */
static const struct js *jinja_run(struct jinja_state *j, const struct jn_list *template,
                                  struct jx_scope *scope)
{
    struct jx x = {.j = j};
    return text_of(&x, template, scope);
}

/* ---- templates: parsing and rendering as a whole ---- */

enum {
    MOST_TEMPLATE = 4 << 20, /* bytes of a template */
    MOST_PARSED = 256 << 20, /* bytes of memory for its syntax tree */
    PARSE_DEPTH = 400,
    RENDER_DEPTH = 1200,
    RENDER_MEMORY = 256 << 20,
    RENDER_STEPS = 20000000,
};

struct jinja_template {
    struct jinja_state state; /* its arena holds the syntax tree */
    struct jn_list body;
    json_t *names; /* jn_names() */
    char *name, *source;
};

/* Copies the source: newlines are \n, and one at the end is dropped. */
static int copy_source(struct jinja_template *t, const char *text, size_t len, const char *name,
                       struct err *err)
{
    const size_t valid = utf8_valid(text, len);
    if (len > MOST_TEMPLATE)
        return err_set(err, "%s: a template of %zu bytes is too long: at most %d", name, len,
                       MOST_TEMPLATE);
    if (valid < len)
        return err_set(err, "%s: the template is not UTF-8 at byte %zu", name, valid);
    if (memchr(text, 0, len))
        return err_set(err, "%s: the template holds a zero character", name);
    t->name = strdup(name);
    t->source = malloc(len + 1);
    if (!t->name || !t->source)
        return err_no_memory(err, "%s: a template", name);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        t->source[n++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    }
    if (n && t->source[n - 1] == '\n')
        n--;
    t->state.source_len = n;
    return 0;
}

/* The only caller of setjmp() for parsing: nothing that it sets is used after an error. */
static int parse(struct jinja_template *t)
{
    if (setjmp(t->state.way_out))
        return -1;
    t->body = jinja_statements(&t->state);
    return 0;
}

int jinja_parse(struct jinja_template **parsed, const char *text, size_t len, const char *name,
                struct err *err)
{
    struct jinja_template *t = calloc(1, sizeof *t);
    *parsed = NULL;
    if (!t)
        return err_no_memory(err, "%s: a template", name);
    t->state = (struct jinja_state){
        .most_memory = MOST_PARSED, .most_work = UINT64_MAX, .most_depth = PARSE_DEPTH, .err = err};
    int rc = copy_source(t, text, len, name, err);
    if (rc == 0) {
        t->state.source = t->source;
        t->state.name = t->name;
        rc = parse(t);
    }
    if (rc == 0 && !(t->names = jn_names(&t->body)))
        rc = err_no_memory(err, "%s: a template", name);
    t->state.err = NULL;
    if (rc < 0)
        jinja_free(t);
    else
        *parsed = t;
    return rc;
}

void jinja_free(struct jinja_template *t)
{
    if (!t)
        return;
    jinja_state_release(&t->state);
    json_decref(t->names);
    free(t->name);
    free(t->source);
    free(t);
}

int jinja_literals(const struct jinja_template *t, struct buf *text, struct err *err)
{
    return buf_add(text, t->source, t->state.source_len, err);
}

bool jinja_names(const struct jinja_template *t, const char *name)
{
    return json_object_get(t->names, name);
}

bool jinja_asks_none(const struct jinja_template *t, const char *name)
{
    return json_is_true(json_object_get(t->names, name));
}

/* ---- rendering ---- */

/* Roles are part of delimiters in many templates: '<|' + role + '|>'. Other names stay content. */
static bool is_usual_role(const json_t *role)
{
    static const char *const usual[] = {
        "system",   "user",          "assistant",   "tool",      "tools",    "developer",
        "function", "model",         "bot",         "ipython",   "human",    "gpt",
        "chatbot",  "environment",   "observation", "context",   "document", "documents",
        "control",  "tool_response", "tool_call",   "tool_calls"};
    const char *name = json_string_value(role);
    for (size_t i = 0; name && i < ARRAY_LEN(usual); i++)
        if (strcasecmp(name, usual[i]) == 0)
            return true;
    return false;
}

/* Marks usual roles as text of the template. */
static void trust_roles(struct jinja_state *j, struct jv messages, const json_t *json)
{
    const struct jv key = jv_string(js_literal(j, "role"));
    for (size_t i = 0; messages.kind == JV_LIST && i < messages.list->n; i++) {
        const json_t *role = json_object_get(json_array_get(json, i), "role");
        if (messages.list->item[i].kind == JV_DICT && is_usual_role(role))
            jv_dict_set(j, messages.list->item[i].dict, key, jv_from_json(j, role, false));
    }
}

static void set_variables(struct jx *x, struct jx_scope *scope, const json_t *variables, bool content)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value)
    {
        const struct jv v = jv_from_json(x->j, value, content);
        if (strcmp(name, "messages") == 0)
            trust_roles(x->j, v, value);
        jx_set(x, scope, js_literal(x->j, name), v);
    }
}

/* The only caller of setjmp() for rendering. */
static int render(struct jinja_state *j, const struct jinja_template *t,
                  const struct jinja_input *input, const struct js **text)
{
    struct jx x = {.j = j};
    if (setjmp(j->way_out))
        return -1;
    struct jx_scope *scope = jx_scope_new(&x, NULL);
    set_variables(&x, scope, input->trusted, false);
    set_variables(&x, scope, input->content, true);
    *text = jinja_run(j, &t->body, scope);
    return 0;
}

/* Appends a text with its marks. */
static int append(const struct js *text, struct marked_text *out, struct err *err)
{
    const size_t len = out->text.len, n_content = out->n_content;
    int rc = 0;
    for (size_t start = 0, end; rc == 0 && start < text->len; start = end) {
        const bool content = js_is_content(text, start);
        end = text->mask ? start + 1 : text->len;
        while (end < text->len && (text->mask[end] != 0) == content)
            end++;
        rc = (content ? marked_add_content : marked_add)(out, text->text + start, end - start, err);
    }
    if (rc < 0) {
        out->text.len = len;
        out->n_content = n_content;
    }
    return rc;
}

int jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                 const struct jinja_limits *limits, struct marked_text *out, struct err *err)
{
    const struct js *text = &js_empty;
    struct jinja_state j = {
        .most_memory = limits && limits->memory ? limits->memory : RENDER_MEMORY,
        .most_work = JINJA_STEP * (limits && limits->steps ? limits->steps : RENDER_STEPS),
        .most_depth = RENDER_DEPTH,
        .name = t->name,
        .source = t->source,
        .source_len = t->state.source_len,
        .now = input->now,
        .err = err,
    };
    int rc = render(&j, t, input, &text);
    if (rc == 0)
        rc = append(text, out, err);
    jinja_state_release(&j);
    return rc;
}
