/* Finds the names in a template. */
#include "text/jinja/jinja_search.h"

#include "text/utf8.h"

enum { MOST_DEPTH = 1200 }; /* nodes nested deeper are not evaluated either */

/* Names that are being found: all of them, or those that are tested for none. */
struct name_search {
    json_t *names;
    bool tested, failed;
};

static void add(struct name_search *s, const struct js *name)
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
static const struct js *called(const struct jn *node)
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
        add(s, called(node->a));
    const struct jn *next = node->kind == JN_COMPARE && node->list.n == 1 ? node->list.item[0] : NULL;
    if (!next || (next->op != JN_EQ && next->op != JN_NE))
        return;
    if (is_none(next->a))
        add(s, called(node->a));
    if (is_none(node->a))
        add(s, called(next->a));
}

static void in_list(struct name_search *s, const struct jn_list *list, unsigned depth);

static void in_node(struct name_search *s, const struct jn *node, unsigned depth)
{
    if (!node || depth > MOST_DEPTH)
        return;
    if (s->tested)
        add_tested(s, node);
    else
        add(s, node->kind == JN_NAME || node->kind == JN_ATTR ? node->name : constant(node));
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

json_t *jn_names(const struct jn_list *template)
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
