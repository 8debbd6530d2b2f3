/* Parses templates: tokens, expressions, statements. */
#include "text/jinja/jinja_parser.h"

#include "text/jinja/jinja_filters.h"
#include "text/jinja/jinja_text.h"
#include "text/jinja/jinja_value.h"

/* ---- reads the tokens of a template one by one, and makes nodes of its syntax tree ---- */

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

static struct jn *jp_expression(struct jinja_parser *p, bool conditional);
static struct jn *jp_tuple(struct jinja_parser *p, bool conditional);
static struct jn *jp_target(struct jinja_parser *p);

static struct jn *jp_node(struct jinja_parser *p, enum jn_kind kind)
{
    struct jn *node = jinja_zalloc(p->j, 1, sizeof *node);
    node->kind = kind;
    node->pos = p->at->pos;
    return node;
}

/* A node for the next token, which is read. */
static struct jn *jp_take(struct jinja_parser *p, enum jn_kind kind)
{
    struct jn *node = jp_node(p, kind);
    p->at++;
    return node;
}

static void jp_push(struct jinja_parser *p, struct jn_list *list, struct jn *node)
{
    list->item = jinja_grow(p->j, list->item, &list->cap, list->n, sizeof(struct jn *));
    list->item[list->n++] = node;
}

static bool jp_is_sign(const struct jinja_parser *p, const char *sign)
{
    return p->at->kind == JT_SIGN && strcmp(p->at->sign, sign) == 0;
}

static bool jp_is_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == JT_NAME && js_is(p->at->value.s, name);
}

/* Read a token if it is next. */
static bool jp_sign(struct jinja_parser *p, const char *sign)
{
    const bool is = jp_is_sign(p, sign);
    p->at += is;
    return is;
}

static bool jp_name(struct jinja_parser *p, const char *name)
{
    const bool is = jp_is_name(p, name);
    p->at += is;
    return is;
}

static _Noreturn void jp_unexpected(struct jinja_parser *p, const char *expected)
{
    static const char *const names[] = {
        [JT_TEXT] = "text",
        [JT_PRINT] = "{{",
        [JT_BLOCK] = "{%",
        [JT_CLOSE] = "the end of the tag",
        [JT_STRING] = "a string",
        [JT_NUMBER] = "a number",
        [JT_END] = "the end of the template",
    };
    const struct jt *t = p->at;
    p->j->pos = t->pos;
    if (t->kind == JT_NAME)
        jinja_fail(p->j, "unexpected \"%.*s\": %s is expected", JS_SHORT(t->value.s), expected);
    jinja_fail(p->j, "unexpected %s: %s is expected", t->kind == JT_SIGN ? t->sign : names[t->kind],
               expected);
}

/* Read a token that must be next. */
static void jp_expect_sign(struct jinja_parser *p, const char *sign)
{
    if (!jp_sign(p, sign))
        jp_unexpected(p, sign);
}

static void jp_expect_name(struct jinja_parser *p, const char *name)
{
    if (!jp_name(p, name))
        jp_unexpected(p, name);
}

void jn_fail_unknown(struct jinja_state *j, const struct jn *node)
{
    j->pos = node->pos;
    jinja_fail(j, "the %s \"%.*s\" is not known", node->kind == JN_TEST ? "test" : "filter",
               JS_SHORT(node->name));
}

static void jp_expect_close(struct jinja_parser *p)
{
    if (p->at->kind != JT_CLOSE)
        jp_unexpected(p, "the end of the tag");
    p->at++;
    if (p->unknown)
        jn_fail_unknown(p->j, p->unknown);
}

static const struct js *jp_any_name(struct jinja_parser *p)
{
    if (p->at->kind != JT_NAME)
        jp_unexpected(p, "a name");
    return p->at++->value.s;
}

/* ---- parser of expressions ---- */

/* ---- primary expressions ---- */

static struct jn *constant_node(struct jinja_parser *p, struct jv value)
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
            node = constant_node(p, constants[i].value);
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
static struct jn *parse_strings(struct jinja_parser *p)
{
    struct jn *node = constant_node(p, p->at->value);
    struct js_builder b = {.j = p->j};
    for (; p->at->kind == JT_STRING; p->at++)
        js_add_str(&b, p->at->value.s);
    node->value = jv_string(js_done(&b));
    return node;
}

/* Items up to a closing bracket, of a list or, in pairs, of a dict. */
static struct jn *parse_items(struct jinja_parser *p, enum jn_kind kind, const char *end)
{
    struct jn *node = jp_take(p, kind);
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

static struct jn *parse_primary(struct jinja_parser *p)
{
    struct jn *node;
    switch (p->at->kind) {
    case JT_NAME: return name_or_constant(p);
    case JT_STRING: return parse_strings(p);
    case JT_NUMBER:
        node = constant_node(p, p->at->value);
        p->at++;
        return node;
    default: break;
    }
    if (jp_is_sign(p, "("))
        return bracketed(p);
    if (jp_is_sign(p, "["))
        return parse_items(p, JN_LIST, "]");
    if (jp_is_sign(p, "{"))
        return parse_items(p, JN_DICT, "}");
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
            node->b = constant_node(p, p->at->value);
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

/* Appends the arguments of a call, behind its opening bracket, to a node. */
static void jp_arguments(struct jinja_parser *p, struct jn *node)
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

static struct jn *parse_call_of(struct jinja_parser *p, struct jn *of)
{
    struct jn *node = jp_node(p, JN_CALL);
    node->a = of;
    p->at++;
    jp_arguments(p, node);
    return node;
}

static struct jn *parse_postfix(struct jinja_parser *p, struct jn *node)
{
    for (;;) {
        jinja_work(p->j, 1);
        if (jp_is_sign(p, ".") || jp_is_sign(p, "["))
            node = subscript(p, node);
        else if (jp_is_sign(p, "("))
            node = parse_call_of(p, node);
        else
            return node;
    }
}

/* The name of a filter or test, which may have dots. */
static const struct js *dotted_name(struct jinja_parser *p)
{
    struct js_builder b = {.j = p->j};
    js_add_str(&b, jp_any_name(p));
    while (jp_sign(p, ".")) {
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

static struct jn *parse_one_filter(struct jinja_parser *p, struct jn *inner)
{
    struct jn *node = jp_node(p, JN_FILTER);
    node->a = inner;
    node->name = dotted_name(p);
    note_known(p, node, jinja_named(JINJA_FILTERS, node->name) != NULL);
    if (jp_sign(p, "("))
        jp_arguments(p, node);
    return node;
}

/* Filters after an expression, each with its bar; `inner` may be NULL. jp_filter_chain(): the bar of
 * the first was read or is not written. */
static struct jn *jp_filter_chain(struct jinja_parser *p, struct jn *inner)
{
    do
        inner = parse_one_filter(p, inner);
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

static struct jn *parse_test(struct jinja_parser *p, struct jn *of)
{
    p->at++;
    struct jn *node = jp_node(p, JN_TEST);
    node->a = of;
    node->op = jp_name(p, "not");
    node->name = dotted_name(p);
    note_known(p, node, jinja_named(JINJA_TESTS, node->name) != NULL);
    if (jp_sign(p, "(")) {
        jp_arguments(p, node);
    } else if (begins_argument(p)) {
        if (jp_is_name(p, "is"))
            jp_unexpected(p, "one test");
        jp_push(p, &node->list, parse_postfix(p, parse_primary(p)));
    }
    return node;
}

static struct jn *parse_filters(struct jinja_parser *p, struct jn *node)
{
    for (;;) {
        jinja_work(p->j, 1);
        if (jp_sign(p, "|"))
            node = parse_one_filter(p, node);
        else if (jp_is_name(p, "is"))
            node = parse_test(p, node);
        else if (jp_is_sign(p, "("))
            node = parse_call_of(p, node);
        else
            return node;
    }
}

/* ---- operators, from the tightest ---- */

static struct jn *parse_unary(struct jinja_parser *p, bool with_filters)
{
    struct jn *node;
    jinja_enter(p->j);
    if (jp_is_sign(p, "-") || jp_is_sign(p, "+")) {
        node = jp_node(p, JN_SIGN);
        node->op = jp_is_sign(p, "+");
        p->at++;
        node->a = parse_unary(p, false);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    if (with_filters)
        node = parse_filters(p, node);
    jinja_leave(p->j);
    return node;
}

typedef struct jn *operand(struct jinja_parser *p);

/* Left-associative operators by precedence; concatenation by ~ is between the lowest two. */
static const struct {
    const char *sign;
    enum jv_op op;
    unsigned level;
} operators[] = {{"+", JV_ADD, 0},       {"-", JV_SUB, 0}, {"*", JV_MUL, 1}, {"/", JV_DIV, 1},
                 {"//", JV_FLOORDIV, 1}, {"%", JV_MOD, 1}, {"**", JV_POW, 2}};

static struct jn *parse_binary(struct jinja_parser *p, unsigned level);

static struct jn *parse_concatenation(struct jinja_parser *p)
{
    struct jn *first = parse_binary(p, 1);
    if (!jp_is_sign(p, "~"))
        return first;
    struct jn *node = jp_node(p, JN_CONCAT);
    jp_push(p, &node->list, first);
    while (jp_sign(p, "~"))
        jp_push(p, &node->list, parse_binary(p, 1));
    return node;
}

static struct jn *parse_operand(struct jinja_parser *p, unsigned level)
{
    return level == 0 ? parse_concatenation(p) : level == 1 ? parse_binary(p, 2) : parse_unary(p, true);
}

/* Operators of a level. Long chains count as nesting, which evaluation recurses into. */
static struct jn *parse_binary(struct jinja_parser *p, unsigned level)
{
    struct jn *left = parse_operand(p, level);
    unsigned depth = 0;
    for (size_t i = 0; i < ARRAY_LEN(operators); i++)
        if (operators[i].level == level && jp_is_sign(p, operators[i].sign)) {
            struct jn *node = jp_take(p, JN_BINARY);
            node->op = (int)operators[i].op;
            node->a = left;
            node->b = parse_operand(p, level);
            left = node;
            jinja_enter(p->j);
            depth++;
            i = SIZE_MAX; /* from the first sign again */
        }
    p->j->depth -= depth;
    return left;
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
    struct jn *first = parse_binary(p, 0), *node = NULL;
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
        next->a = parse_binary(p, 0);
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
static struct jn *parse_logical(struct jinja_parser *p, const char *word, enum jn_kind kind,
                                operand *next)
{
    struct jn *first = next(p), **end = &first;
    unsigned depth = 0;
    while (jp_is_name(p, word)) {
        struct jn *node = jp_take(p, kind);
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

static struct jn *conjunction(struct jinja_parser *p)
{
    return parse_logical(p, "and", JN_AND, negation);
}
static struct jn *disjunction(struct jinja_parser *p)
{
    return parse_logical(p, "or", JN_OR, conjunction);
}

/* An expression; `conditional`: it may be "a if b else c". */
static struct jn *jp_expression(struct jinja_parser *p, bool conditional)
{
    const struct jn *unknown = p->unknown;
    jinja_enter(p->j);
    p->unknown = NULL;
    struct jn *node = disjunction(p);
    while (conditional && jp_is_name(p, "if")) {
        struct jn *choice = jp_take(p, JN_COND);
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

/* An expression, or several separated by commas, which are a tuple. */
static struct jn *jp_tuple(struct jinja_parser *p, bool conditional)
{
    struct jn *first = jp_expression(p, conditional);
    if (!jp_is_sign(p, ","))
        return first;
    struct jn *node = jp_node(p, JN_TUPLE);
    jp_push(p, &node->list, first);
    while (jp_sign(p, ",")) {
        if (jp_is_sign(p, ")") || jp_is_sign(p, "=") || p->at->kind == JT_CLOSE || jp_is_name(p, "in"))
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
        struct jn *attribute = jp_take(p, JN_ATTR);
        attribute->a = node;
        attribute->name = jp_any_name(p);
        return attribute;
    }
    return node;
}

/* A name, or names in brackets or separated by commas. */
static struct jn *jp_target(struct jinja_parser *p)
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

/* ---- parser of statements ---- */

/* Names of tags that end a block; NULL ends the list. */
typedef const char *const end_names[4];

static struct jn_list parse_block(struct jinja_parser *p, end_names ends);

static bool is_end(const struct jinja_parser *p, end_names ends)
{
    for (size_t i = 0; ends && ends[i]; i++)
        if (jp_is_name(p, ends[i]))
            return true;
    return false;
}

/* A block with variables of its own, whose unknown filters are errors even inside a branch. */
static struct jn_list inner_block(struct jinja_parser *p, end_names ends)
{
    const bool in_branch = p->in_branch;
    p->in_branch = false;
    const struct jn_list body = parse_block(p, ends);
    p->in_branch = in_branch;
    return body;
}

/* A block whose text is a value: no loop around it can be ended from inside. */
static struct jn_list captured_block(struct jinja_parser *p, end_names ends)
{
    const unsigned loops = p->loops;
    p->loops = 0;
    const struct jn_list body = inner_block(p, ends);
    p->loops = loops;
    return body;
}

static void end_tag(struct jinja_parser *p, const char *name)
{
    jp_expect_name(p, name);
    jp_expect_close(p);
}

/* Reads the end of a tag, a block, and the tag that ends it. */
static struct jn *with_block(struct jinja_parser *p, struct jn *node,
                             struct jn_list read(struct jinja_parser *, end_names), const char *end)
{
    const char *const ends[4] = {end};
    jp_expect_close(p);
    node->body = read(p, ends);
    end_tag(p, end);
    return node;
}

static struct jn *parse_if(struct jinja_parser *p)
{
    static end_names ends = {"elif", "else", "endif"};
    static end_names end = {"endif"};
    const bool in_branch = p->in_branch;
    struct jn *first = jp_node(p, JN_IF), *node = first;
    jinja_enter(p->j);
    p->at++;
    p->in_branch = true; /* the condition, too */
    for (;;) {
        node->a = jp_tuple(p, false);
        jp_expect_close(p);
        node->body = parse_block(p, ends);
        if (!jp_is_name(p, "elif"))
            break;
        p->at++;
        struct jn *next = jp_node(p, JN_IF);
        jp_push(p, &node->other, next);
        node = next;
    }
    if (jp_name(p, "else")) {
        jp_expect_close(p);
        node->other = parse_block(p, end);
    }
    p->in_branch = in_branch;
    end_tag(p, "endif");
    jinja_leave(p->j);
    return first;
}

static struct jn *parse_for(struct jinja_parser *p)
{
    static end_names ends = {"endfor", "else"};
    static end_names end = {"endfor"};
    struct jn *node = jp_take(p, JN_FOR);
    node->a = jp_target(p);
    if (node->a->kind == JN_ATTR)
        jp_unexpected(p, "a name");
    jp_expect_name(p, "in");
    node->b = jp_tuple(p, false);
    if (jp_name(p, "if"))
        node->c = jp_expression(p, true);
    jp_expect_close(p);
    p->loops++;
    node->body = inner_block(p, ends);
    p->loops--;
    if (jp_name(p, "else")) {
        jp_expect_close(p);
        node->other = inner_block(p, end);
    }
    end_tag(p, "endfor");
    return node;
}

static struct jn *parse_set(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_SET);
    node->a = jp_target(p);
    if (jp_sign(p, "=")) {
        node->b = jp_tuple(p, true);
        jp_expect_close(p);
        return node;
    }
    node->kind = JN_SET_BLOCK;
    if (jp_sign(p, "|"))
        node->b = jp_filter_chain(p, NULL);
    return with_block(p, node, captured_block, "endset");
}

/* Parameters of a macro or a call block, behind the opening bracket. */
static void parse_parameters(struct jinja_parser *p, struct jn *node)
{
    while (!jp_is_sign(p, ")")) {
        if (node->list.n)
            jp_expect_sign(p, ",");
        if (jp_is_sign(p, ")"))
            break;
        struct jn *name = jp_node(p, JN_NAME);
        name->name = jp_any_name(p);
        jp_push(p, &node->list, name);
        if (jp_sign(p, "="))
            jp_push(p, &node->defaults, jp_expression(p, true));
        else if (node->defaults.n)
            jp_unexpected(p, "a default");
    }
    p->at++;
}

/* The body of a macro: notes what it uses. */
static struct jn *with_macro_body(struct jinja_parser *p, struct jn *node, const char *end)
{
    const unsigned uses = p->uses;
    p->uses = 0;
    (void)with_block(p, node, captured_block, end);
    node->uses = p->uses;
    p->uses = uses;
    return node;
}

static struct jn *parse_macro(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_MACRO);
    node->name = jp_any_name(p);
    jp_expect_sign(p, "(");
    parse_parameters(p, node);
    return with_macro_body(p, node, "endmacro");
}

static struct jn *parse_call(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_CALL_BLOCK);
    node->name = &js_empty;
    if (jp_sign(p, "("))
        parse_parameters(p, node);
    node->a = jp_expression(p, true);
    if (node->a->kind != JN_CALL)
        jp_unexpected(p, "a call");
    return with_macro_body(p, node, "endcall");
}

static struct jn *parse_filter(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_FILTER_BLOCK);
    node->b = jp_filter_chain(p, NULL);
    return with_block(p, node, captured_block, "endfilter");
}

static struct jn *parse_with(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_WITH);
    while (p->at->kind != JT_CLOSE) {
        if (node->list.n)
            jp_expect_sign(p, ",");
        struct jn *name = jp_node(p, JN_NAME);
        name->name = jp_any_name(p);
        jp_push(p, &node->list, name);
        jp_expect_sign(p, "=");
        jp_push(p, &node->list, jp_expression(p, true));
    }
    return with_block(p, node, inner_block, "endwith");
}

static struct jn *parse_generation(struct jinja_parser *p)
{
    return with_macro_body(p, jp_take(p, JN_GENERATION), "endgeneration");
}

static struct jn *parse_jump(struct jinja_parser *p)
{
    struct jn *node = jp_node(p, jp_is_name(p, "break") ? JN_BREAK : JN_CONTINUE);
    if (!p->loops)
        jp_unexpected(p, "a loop around it");
    p->at++;
    jp_expect_close(p);
    return node;
}

static struct jn *parse_print(struct jinja_parser *p)
{
    struct jn *node = jp_take(p, JN_PRINT);
    node->a = jp_tuple(p, true);
    jp_expect_close(p);
    return node;
}

static struct jn *parse_statement(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        struct jn *(*parse)(struct jinja_parser *p);
    } tags[] = {
        {"if", parse_if},       {"for", parse_for},
        {"set", parse_set},     {"macro", parse_macro},
        {"call", parse_call},   {"filter", parse_filter},
        {"with", parse_with},   {"generation", parse_generation},
        {"break", parse_jump},  {"continue", parse_jump},
        {"print", parse_print},
    };
    for (size_t i = 0; i < ARRAY_LEN(tags); i++)
        if (jp_is_name(p, tags[i].name))
            return tags[i].parse(p);
    if (p->at->kind != JT_NAME)
        jp_unexpected(p, "a tag");
    p->j->pos = p->at->pos;
    jinja_fail(p->j, "the tag \"%.*s\" is not known here", JS_SHORT(p->at->value.s));
}

/* Statements up to a tag that ends the block, of which only the opening is read; without `ends`, up to
 * the end of the template. */
static struct jn_list parse_block(struct jinja_parser *p, end_names ends)
{
    struct jn_list list = {0};
    struct jn *node;
    jinja_enter(p->j);
    for (;;) {
        jinja_work(p->j, 1);
        switch (p->at->kind) {
        case JT_TEXT:
            node = jp_node(p, JN_TEXT);
            node->value = p->at->value;
            p->at++;
            jp_push(p, &list, node);
            break;
        case JT_PRINT: jp_push(p, &list, parse_print(p)); break;
        case JT_BLOCK:
            p->at++;
            if (is_end(p, ends)) {
                jinja_leave(p->j);
                return list;
            }
            jp_push(p, &list, parse_statement(p));
            break;
        default:
            if (ends) {
                p->j->pos = p->at->pos;
                jinja_fail(p->j, "the template ends where the tag \"%s\" is expected", ends[0]);
            }
            jinja_leave(p->j);
            return list;
        }
    }
}

struct jn_list jinja_statements(struct jinja_state *j)
{
    const struct jt_list tokens = jinja_lex(j);
    struct jinja_parser p = {.j = j, .at = tokens.token};
    return parse_block(&p, NULL);
}
