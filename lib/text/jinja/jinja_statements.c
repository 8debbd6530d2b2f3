/* Parser of statements. */
#include "text/jinja/jinja_statements.h"

#include <string.h>

#include "text/jinja/jinja_parser.h"

/* Names of tags that end a block; NULL ends the list. */
typedef const char *const end_names[4];

static struct jn_list block(struct jinja_parser *p, end_names ends);

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
    const struct jn_list body = block(p, ends);
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
        node->body = block(p, ends);
        if (!jp_is_name(p, "elif"))
            break;
        p->at++;
        struct jn *next = jp_node(p, JN_IF);
        jp_push(p, &node->other, next);
        node = next;
    }
    if (jp_name(p, "else")) {
        jp_expect_close(p);
        node->other = block(p, end);
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
    struct jn *node = jp_node(p, JN_FOR);
    p->at++;
    node->a = jp_target(p);
    if (node->a->kind == JN_ATTR)
        jp_unexpected(p, "a name");
    jp_expect_name(p, "in");
    node->b = jp_tuple(p, false);
    if (jp_name(p, "if"))
        node->c = jp_expression(p, true);
    node->op = jp_name(p, "recursive");
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
    static end_names end = {"endset"};
    struct jn *node = jp_node(p, JN_SET);
    p->at++;
    node->a = jp_target(p);
    if (jp_sign(p, "=")) {
        node->b = jp_tuple(p, true);
        jp_expect_close(p);
        return node;
    }
    node->kind = JN_SET_BLOCK;
    if (jp_sign(p, "|"))
        node->b = jp_filter_chain(p, NULL);
    jp_expect_close(p);
    node->body = captured_block(p, end);
    end_tag(p, "endset");
    return node;
}

/* Parameters of a macro or a call block, behind the opening bracket. */
static void parameters(struct jinja_parser *p, struct jn *node)
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
static void macro_body(struct jinja_parser *p, struct jn *node, end_names end)
{
    const unsigned uses = p->uses;
    p->uses = 0;
    node->body = captured_block(p, end);
    node->uses = p->uses;
    p->uses = uses;
    end_tag(p, end[0]);
}

static struct jn *parse_macro(struct jinja_parser *p)
{
    static end_names end = {"endmacro"};
    struct jn *node = jp_node(p, JN_MACRO);
    p->at++;
    node->name = jp_any_name(p);
    jp_expect_sign(p, "(");
    parameters(p, node);
    jp_expect_close(p);
    macro_body(p, node, end);
    return node;
}

static struct jn *parse_call(struct jinja_parser *p)
{
    static end_names end = {"endcall"};
    struct jn *node = jp_node(p, JN_CALL_BLOCK);
    p->at++;
    node->name = &js_empty;
    if (jp_sign(p, "("))
        parameters(p, node);
    node->a = jp_expression(p, true);
    if (node->a->kind != JN_CALL)
        jp_unexpected(p, "a call");
    jp_expect_close(p);
    macro_body(p, node, end);
    return node;
}

static struct jn *parse_filter(struct jinja_parser *p)
{
    static end_names end = {"endfilter"};
    struct jn *node = jp_node(p, JN_FILTER_BLOCK);
    p->at++;
    node->b = jp_filter_chain(p, NULL);
    jp_expect_close(p);
    node->body = captured_block(p, end);
    end_tag(p, "endfilter");
    return node;
}

static struct jn *parse_with(struct jinja_parser *p)
{
    static end_names end = {"endwith"};
    struct jn *node = jp_node(p, JN_WITH);
    p->at++;
    while (p->at->kind != JT_CLOSE) {
        if (node->list.n)
            jp_expect_sign(p, ",");
        struct jn *name = jp_node(p, JN_NAME);
        name->name = jp_any_name(p);
        jp_push(p, &node->list, name);
        jp_expect_sign(p, "=");
        jp_push(p, &node->list, jp_expression(p, true));
    }
    jp_expect_close(p);
    node->body = inner_block(p, end);
    end_tag(p, "endwith");
    return node;
}

static struct jn *parse_generation(struct jinja_parser *p)
{
    static end_names end = {"endgeneration"};
    struct jn *node = jp_node(p, JN_GENERATION);
    p->at++;
    jp_expect_close(p);
    macro_body(p, node, end);
    return node;
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
    struct jn *node = jp_node(p, JN_PRINT);
    p->at++;
    node->a = jp_tuple(p, true);
    jp_expect_close(p);
    return node;
}

static struct jn *statement(struct jinja_parser *p)
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
    jinja_fail(p->j, "the tag \"%.*s\" is not known here", (int)size_min(p->at->value.s->len, 60),
               p->at->value.s->text);
}

/* Statements up to a tag that ends the block, of which only the opening is read; without `ends`, up to
 * the end of the template. */
static struct jn_list block(struct jinja_parser *p, end_names ends)
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
            jp_push(p, &list, statement(p));
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
    return block(&p, NULL);
}
