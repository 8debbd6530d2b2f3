/* Parser of expressions. */
#include "text/jinja/jinja_parser.h"

#include <stdio.h>
#include <string.h>

#include "text/jinja_values/jinja_arith.h"
#include "text/jinja_functions/jinja_filters.h"
#include "text/jinja_functions/jinja_tests.h"

/* ---- primary expressions ---- */

static struct jn *constant(struct jinja_parser *p, struct jv value)
{
    struct jn *node = jp_node(p, JN_CONST);
    node->value = value;
    return node;
}

static struct jn *name_or_constant(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        struct jv value;
    } constants[] = {
        {"true", {.kind = JV_BOOL, .b = true}},
        {"True", {.kind = JV_BOOL, .b = true}},
        {"false", {.kind = JV_BOOL, .b = false}},
        {"False", {.kind = JV_BOOL, .b = false}},
        {"none", {.kind = JV_NONE}},
        {"None", {.kind = JV_NONE}},
    };
    static const struct {
        const char *name;
        unsigned use;
    } implicit[] = {{"varargs", JN_VARARGS}, {"kwargs", JN_KWARGS}, {"caller", JN_CALLER}};
    const struct js *name = p->at->value.s;
    struct jn *node = NULL;
    for (size_t i = 0; i < ARRAY_LEN(constants) && !node; i++)
        if (js_is(name, constants[i].name))
            node = constant(p, constants[i].value);
    if (!node) {
        node = jp_node(p, JN_NAME);
        node->name = name;
    }
    for (size_t i = 0; i < ARRAY_LEN(implicit); i++)
        if (js_is(name, implicit[i].name))
            p->uses |= implicit[i].use;
    p->at++;
    return node;
}

/* Strings side by side are one. */
static struct jn *strings(struct jinja_parser *p)
{
    struct jn *node = constant(p, p->at->value);
    struct js_builder b = {.j = p->j};
    for (; p->at->kind == JT_STRING; p->at++)
        js_add_str(&b, p->at->value.s);
    node->value = jv_string(js_done(&b));
    return node;
}

/* Items up to a closing bracket, of a list or, in pairs, of a dict. */
static struct jn *items(struct jinja_parser *p, enum jn_kind kind, const char *end)
{
    struct jn *node = jp_node(p, kind);
    p->at++;
    while (!jp_is_sign(p, end)) {
        if (node->list.n) {
            jp_expect_sign(p, ",");
            if (jp_is_sign(p, end))
                break;
        }
        jp_push(p, &node->list, jp_expression(p, true));
        if (kind == JN_DICT) {
            jp_expect_sign(p, ":");
            jp_push(p, &node->list, jp_expression(p, true));
        }
    }
    p->at++;
    return node;
}

static struct jn *bracketed(struct jinja_parser *p)
{
    struct jn *node;
    p->at++;
    if (jp_is_sign(p, ")"))
        node = jp_node(p, JN_TUPLE);
    else
        node = jp_tuple(p, true);
    jp_expect_sign(p, ")");
    return node;
}

static struct jn *primary(struct jinja_parser *p)
{
    struct jn *node;
    switch (p->at->kind) {
    case JT_NAME: return name_or_constant(p);
    case JT_STRING: return strings(p);
    case JT_NUMBER:
        node = constant(p, p->at->value);
        p->at++;
        return node;
    default: break;
    }
    if (jp_is_sign(p, "("))
        return bracketed(p);
    if (jp_is_sign(p, "["))
        return items(p, JN_LIST, "]");
    if (jp_is_sign(p, "{"))
        return items(p, JN_DICT, "}");
    jp_unexpected(p, "an expression");
}

/* ---- postfix ---- */

/* What stands in square brackets: an expression, or a slice, then in *slice. */
static struct jn *index_of(struct jinja_parser *p, struct jn *slice)
{
    struct jn *bound[3] = {NULL, NULL, NULL};
    size_t n = 0;
    bool is_slice = false;
    for (;;) {
        if (!jp_is_sign(p, ":") && !jp_is_sign(p, "]") && !jp_is_sign(p, ","))
            bound[n] = jp_expression(p, true);
        if (n == 2 || !jp_sign(p, ":"))
            break;
        is_slice = true;
        n++;
    }
    if (!is_slice && !bound[0])
        jp_unexpected(p, "an expression");
    for (size_t i = 0; is_slice && i < 3; i++)
        jp_push(p, &slice->list, bound[i]);
    return is_slice ? NULL : bound[0];
}

static struct jn *subscript(struct jinja_parser *p, struct jn *of)
{
    struct jn *node = jp_node(p, JN_ITEM);
    node->a = of;
    if (jp_sign(p, ".")) {
        if (p->at->kind == JT_NUMBER && p->at->value.kind == JV_INT) {
            node->b = constant(p, p->at->value);
            p->at++;
            return node;
        }
        node->kind = JN_ATTR;
        node->name = jp_any_name(p);
        return node;
    }
    p->at++;
    node->b = index_of(p, node);
    if (!node->b)
        node->kind = JN_SLICE;
    if (node->b && jp_is_sign(p, ",")) {
        struct jn *tuple = jp_node(p, JN_TUPLE);
        jp_push(p, &tuple->list, node->b);
        while (jp_sign(p, ","))
            jp_push(p, &tuple->list, jp_expression(p, true));
        node->b = tuple;
    }
    jp_expect_sign(p, "]");
    return node;
}

void jp_arguments(struct jinja_parser *p, struct jn *node)
{
    bool comma = true;
    while (!jp_is_sign(p, ")")) {
        if (!comma)
            jp_unexpected(p, ",");
        struct jn_named named = {NULL, NULL};
        const bool keyword =
            p->at->kind == JT_NAME && p->at[1].kind == JT_SIGN && strcmp(p->at[1].sign, "=") == 0;
        if (jp_sign(p, "*")) {
            struct jn *star = jp_node(p, JN_STAR);
            star->a = jp_expression(p, true);
            jp_push(p, &node->list, star);
        } else if (jp_sign(p, "**") || keyword) {
            if (keyword) {
                named.name = jp_any_name(p);
                p->at++;
            }
            named.value = jp_expression(p, true);
            node->named =
                jinja_grow(p->j, node->named, &node->cap_named, node->n_named, sizeof *node->named);
            node->named[node->n_named++] = named;
        } else {
            if (node->n_named)
                jp_unexpected(p, "an argument with a name");
            jp_push(p, &node->list, jp_expression(p, true));
        }
        comma = jp_sign(p, ",");
    }
    p->at++;
}

static struct jn *call(struct jinja_parser *p, struct jn *of)
{
    struct jn *node = jp_node(p, JN_CALL);
    node->a = of;
    p->at++;
    jp_arguments(p, node);
    return node;
}

static struct jn *postfix(struct jinja_parser *p, struct jn *node)
{
    for (;;) {
        jinja_work(p->j, 1);
        if (jp_is_sign(p, ".") || jp_is_sign(p, "["))
            node = subscript(p, node);
        else if (jp_is_sign(p, "("))
            node = call(p, node);
        else
            return node;
    }
}

/* The name of a filter or test, which may have dots. */
static const struct js *dotted_name(struct jinja_parser *p)
{
    struct js_builder b = {.j = p->j};
    js_add_str(&b, jp_any_name(p));
    while (jp_is_sign(p, ".")) {
        p->at++;
        js_add(&b, ".", 1, false);
        js_add_str(&b, jp_any_name(p));
    }
    return js_done(&b);
}

static void note_known(struct jinja_parser *p, const struct jn *node, bool known)
{
    if (!known && !p->in_branch && !p->unknown)
        p->unknown = node;
}

static struct jn *filter(struct jinja_parser *p, struct jn *inner)
{
    struct jn *node = jp_node(p, JN_FILTER);
    node->a = inner;
    node->name = dotted_name(p);
    note_known(p, node, jinja_filter(node->name) != NULL);
    if (jp_is_sign(p, "(")) {
        p->at++;
        jp_arguments(p, node);
    }
    return node;
}

struct jn *jp_filter_chain(struct jinja_parser *p, struct jn *inner)
{
    do
        inner = filter(p, inner);
    while (jp_sign(p, "|"));
    return inner;
}

/* Whether the next token begins an argument of a test without brackets. */
static bool begins_argument(const struct jinja_parser *p)
{
    switch (p->at->kind) {
    case JT_STRING:
    case JT_NUMBER: return true;
    case JT_NAME: return !jp_is_name(p, "else") && !jp_is_name(p, "or") && !jp_is_name(p, "and");
    case JT_SIGN: return jp_is_sign(p, "[") || jp_is_sign(p, "{");
    default: return false;
    }
}

static struct jn *test(struct jinja_parser *p, struct jn *of)
{
    p->at++;
    struct jn *node = jp_node(p, JN_TEST);
    node->a = of;
    node->op = jp_name(p, "not");
    node->name = dotted_name(p);
    note_known(p, node, jinja_test(node->name) != NULL);
    if (jp_is_sign(p, "(")) {
        p->at++;
        jp_arguments(p, node);
    } else if (begins_argument(p)) {
        if (jp_is_name(p, "is"))
            jp_unexpected(p, "one test");
        jp_push(p, &node->list, postfix(p, primary(p)));
    }
    return node;
}

static struct jn *filters(struct jinja_parser *p, struct jn *node)
{
    for (;;) {
        jinja_work(p->j, 1);
        if (jp_sign(p, "|"))
            node = filter(p, node);
        else if (jp_is_name(p, "is"))
            node = test(p, node);
        else if (jp_is_sign(p, "("))
            node = call(p, node);
        else
            return node;
    }
}

/* ---- operators, from the tightest ---- */

static struct jn *unary(struct jinja_parser *p, bool with_filters)
{
    struct jn *node;
    jinja_enter(p->j);
    if (jp_is_sign(p, "-") || jp_is_sign(p, "+")) {
        node = jp_node(p, JN_SIGN);
        node->op = jp_is_sign(p, "+");
        p->at++;
        node->a = unary(p, false);
    } else {
        node = primary(p);
    }
    node = postfix(p, node);
    if (with_filters)
        node = filters(p, node);
    jinja_leave(p->j);
    return node;
}

struct operator_sign {
    const char *sign;
    enum jv_op op;
};

typedef struct jn *operand(struct jinja_parser *p);

/* Left-associative operators of one precedence. Long chains count as nesting, which evaluation
 * recurses into. */
static struct jn *binary(struct jinja_parser *p, operand *next, const struct operator_sign *signs,
                         size_t n)
{
    struct jn *left = next(p);
    unsigned depth = 0;
    for (size_t i = 0; i < n; i++)
        if (jp_is_sign(p, signs[i].sign)) {
            struct jn *node = jp_node(p, JN_BINARY);
            node->op = (int)signs[i].op;
            p->at++;
            node->a = left;
            node->b = next(p);
            left = node;
            jinja_enter(p->j);
            depth++;
            i = SIZE_MAX; /* from the first sign again */
        }
    p->j->depth -= depth;
    return left;
}

static struct jn *filtered(struct jinja_parser *p) { return unary(p, true); }

static struct jn *power(struct jinja_parser *p)
{
    static const struct operator_sign signs[] = {{"**", JV_POW}};
    return binary(p, filtered, signs, ARRAY_LEN(signs));
}

static struct jn *product(struct jinja_parser *p)
{
    static const struct operator_sign signs[] = {
        {"*", JV_MUL}, {"/", JV_DIV}, {"//", JV_FLOORDIV}, {"%", JV_MOD}};
    return binary(p, power, signs, ARRAY_LEN(signs));
}

static struct jn *concatenation(struct jinja_parser *p)
{
    struct jn *first = product(p);
    if (!jp_is_sign(p, "~"))
        return first;
    struct jn *node = jp_node(p, JN_CONCAT);
    jp_push(p, &node->list, first);
    while (jp_sign(p, "~"))
        jp_push(p, &node->list, product(p));
    return node;
}

static struct jn *sum(struct jinja_parser *p)
{
    static const struct operator_sign signs[] = {{"+", JV_ADD}, {"-", JV_SUB}};
    return binary(p, concatenation, signs, ARRAY_LEN(signs));
}

/* Reads a comparison operator. */
static bool compares(struct jinja_parser *p, int *op)
{
    static const struct {
        const char *sign;
        enum jn_compare op;
    } signs[] = {{"==", JN_EQ}, {"!=", JN_NE}, {"<=", JN_LE},
                 {">=", JN_GE}, {"<", JN_LT},  {">", JN_GT}};
    for (size_t i = 0; i < ARRAY_LEN(signs); i++)
        if (jp_sign(p, signs[i].sign)) {
            *op = (int)signs[i].op;
            return true;
        }
    if (jp_name(p, "in")) {
        *op = JN_IN;
        return true;
    }
    if (jp_is_name(p, "not") && p->at[1].kind == JT_NAME && js_is(p->at[1].value.s, "in")) {
        p->at += 2;
        *op = JN_NOT_IN;
        return true;
    }
    return false;
}

static struct jn *comparison(struct jinja_parser *p)
{
    struct jn *first = sum(p), *node = NULL;
    int op;
    for (;;) {
        struct jn *next = jp_node(p, JN_COMPARE);
        if (!compares(p, &op))
            return node ? node : first;
        if (!node) {
            node = jp_node(p, JN_COMPARE);
            node->pos = next->pos;
            node->a = first;
        }
        next->op = op;
        next->a = sum(p);
        jp_push(p, &node->list, next);
    }
}

static struct jn *negation(struct jinja_parser *p)
{
    struct jn *node;
    if (!jp_is_name(p, "not"))
        return comparison(p);
    jinja_enter(p->j);
    node = jp_node(p, JN_NOT);
    p->at++;
    node->a = negation(p);
    jinja_leave(p->j);
    return node;
}

/* "and" and "or"; chains lean to the right, with the same meaning. */
static struct jn *logical(struct jinja_parser *p, const char *word, enum jn_kind kind, operand *next)
{
    struct jn *first = next(p), **end = &first;
    unsigned depth = 0;
    while (jp_is_name(p, word)) {
        struct jn *node = jp_node(p, kind);
        p->at++;
        node->a = *end;
        node->b = next(p);
        *end = node;
        end = &node->b;
        jinja_enter(p->j);
        depth++;
    }
    p->j->depth -= depth;
    return first;
}

static struct jn *conjunction(struct jinja_parser *p) { return logical(p, "and", JN_AND, negation); }
static struct jn *disjunction(struct jinja_parser *p) { return logical(p, "or", JN_OR, conjunction); }

struct jn *jp_expression(struct jinja_parser *p, bool conditional)
{
    const struct jn *unknown = p->unknown;
    jinja_enter(p->j);
    p->unknown = NULL;
    struct jn *node = disjunction(p);
    while (conditional && jp_is_name(p, "if")) {
        struct jn *choice = jp_node(p, JN_COND);
        p->at++;
        choice->b = node;
        choice->a = disjunction(p);
        if (jp_name(p, "else"))
            choice->c = jp_expression(p, true);
        node = choice;
        p->unknown = NULL; /* all of it is in branches */
    }
    p->unknown = unknown ? unknown : p->unknown;
    jinja_leave(p->j);
    return node;
}

struct jn *jp_tuple(struct jinja_parser *p, bool conditional)
{
    struct jn *first = jp_expression(p, conditional);
    if (!jp_is_sign(p, ","))
        return first;
    struct jn *node = jp_node(p, JN_TUPLE);
    jp_push(p, &node->list, first);
    while (jp_sign(p, ",")) {
        if (jp_is_sign(p, ")") || jp_is_sign(p, "=") || p->at->kind == JT_CLOSE ||
            jp_is_name(p, "in") || jp_is_name(p, "recursive"))
            break;
        jp_push(p, &node->list, jp_expression(p, conditional));
    }
    return node;
}

static struct jn *one_target(struct jinja_parser *p)
{
    struct jn *node;
    if (jp_sign(p, "(")) {
        jinja_enter(p->j);
        node = jp_target(p);
        jinja_leave(p->j);
        jp_expect_sign(p, ")");
        return node;
    }
    node = jp_node(p, JN_NAME);
    node->name = jp_any_name(p);
    if (js_is(node->name, "true") || js_is(node->name, "false") || js_is(node->name, "none") ||
        js_is(node->name, "True") || js_is(node->name, "False") || js_is(node->name, "None"))
        jinja_fail(p->j, "a constant cannot be assigned to");
    if (jp_is_sign(p, ".")) {
        struct jn *attribute = jp_node(p, JN_ATTR);
        p->at++;
        attribute->a = node;
        attribute->name = jp_any_name(p);
        return attribute;
    }
    return node;
}

struct jn *jp_target(struct jinja_parser *p)
{
    struct jn *first = one_target(p);
    if (!jp_is_sign(p, ","))
        return first;
    struct jn *node = jp_node(p, JN_TUPLE);
    jp_push(p, &node->list, first);
    while (jp_sign(p, ",") && (p->at->kind == JT_NAME || jp_is_sign(p, "(")) && !jp_is_name(p, "in"))
        jp_push(p, &node->list, one_target(p));
    return node;
}
