/* Reads the tokens of a template one by one, and makes nodes of its syntax tree. */
#include "text/jinja/jinja_cursor.h"

#include <string.h>

struct jn *jp_node(struct jinja_parser *p, enum jn_kind kind)
{
    struct jn *node = jinja_zalloc(p->j, 1, sizeof *node);
    node->kind = kind;
    node->pos = p->at->pos;
    return node;
}

void jp_push(struct jinja_parser *p, struct jn_list *list, struct jn *node)
{
    list->item = jinja_grow(p->j, list->item, &list->cap, list->n, sizeof(struct jn *));
    list->item[list->n++] = node;
}

bool jp_is_sign(const struct jinja_parser *p, const char *sign)
{
    return p->at->kind == JT_SIGN && strcmp(p->at->sign, sign) == 0;
}

bool jp_is_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == JT_NAME && js_is(p->at->value.s, name);
}

bool jp_sign(struct jinja_parser *p, const char *sign)
{
    const bool is = jp_is_sign(p, sign);
    p->at += is;
    return is;
}

bool jp_name(struct jinja_parser *p, const char *name)
{
    const bool is = jp_is_name(p, name);
    p->at += is;
    return is;
}

void jp_unexpected(struct jinja_parser *p, const char *expected)
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
        jinja_fail(p->j, "unexpected \"%.*s\": %s is expected", (int)size_min(t->value.s->len, 60),
                   t->value.s->text, expected);
    jinja_fail(p->j, "unexpected %s: %s is expected", t->kind == JT_SIGN ? t->sign : names[t->kind],
               expected);
}

void jp_expect_sign(struct jinja_parser *p, const char *sign)
{
    if (!jp_sign(p, sign))
        jp_unexpected(p, sign);
}

void jp_expect_name(struct jinja_parser *p, const char *name)
{
    if (!jp_name(p, name))
        jp_unexpected(p, name);
}

void jn_fail_unknown(struct jinja_state *j, const struct jn *node)
{
    j->pos = node->pos;
    jinja_fail(j, "the %s \"%.*s\" is not known", node->kind == JN_TEST ? "test" : "filter",
               (int)size_min(node->name->len, 60), node->name->text);
}

void jp_expect_close(struct jinja_parser *p)
{
    if (p->at->kind != JT_CLOSE)
        jp_unexpected(p, "the end of the tag");
    p->at++;
    if (p->unknown)
        jn_fail_unknown(p->j, p->unknown);
}

const struct js *jp_any_name(struct jinja_parser *p)
{
    if (p->at->kind != JT_NAME)
        jp_unexpected(p, "a name");
    return p->at++->value.s;
}
