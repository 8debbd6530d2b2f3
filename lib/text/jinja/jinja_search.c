/* Looks for names in a template. */
#include "text/jinja/jinja_search.h"

#include <string.h>

enum { MOST_DEPTH = 1200 }; /* nodes nested deeper are not evaluated either */

typedef bool matcher(const struct jn *node, const char *name);

static bool in_list(const struct jn_list *list, matcher *matches, const char *name, unsigned depth);

static bool in_node(const struct jn *node, matcher *matches, const char *name, unsigned depth)
{
    if (!node || depth > MOST_DEPTH)
        return false;
    bool found = matches(node, name) || in_node(node->a, matches, name, depth + 1) ||
                 in_node(node->b, matches, name, depth + 1) ||
                 in_node(node->c, matches, name, depth + 1);
    for (size_t i = 0; i < node->n_named && !found; i++)
        found = in_node(node->named[i].value, matches, name, depth + 1);
    return found || in_list(&node->list, matches, name, depth + 1) ||
           in_list(&node->defaults, matches, name, depth + 1) ||
           in_list(&node->body, matches, name, depth + 1) ||
           in_list(&node->other, matches, name, depth + 1);
}

static bool in_list(const struct jn_list *list, matcher *matches, const char *name, unsigned depth)
{
    bool found = false;
    for (size_t i = 0; i < list->n && !found; i++)
        found = in_node(list->item[i], matches, name, depth);
    return found;
}

static bool is_constant(const struct jn *node, const char *text)
{
    return node && node->kind == JN_CONST && node->value.kind == JV_STRING &&
           js_is(node->value.s, text);
}

static bool names(const struct jn *node, const char *name)
{
    return is_constant(node, name) ||
           ((node->kind == JN_NAME || node->kind == JN_ATTR) && js_is(node->name, name));
}

/* Whether the value of an expression is called so: NAME, x.NAME, x["NAME"]. */
static bool is_called(const struct jn *node, const char *name)
{
    while (node->kind == JN_FILTER && node->a)
        node = node->a;
    return node->kind == JN_ITEM ? is_constant(node->b, name)
                                 : node->kind != JN_CONST && names(node, name);
}

static bool is_none(const struct jn *node)
{
    return node->kind == JN_CONST && node->value.kind == JV_NONE;
}

static bool asks_none(const struct jn *node, const char *name)
{
    if (node->kind == JN_TEST)
        return js_is(node->name, "none") && is_called(node->a, name);
    const struct jn *next = node->kind == JN_COMPARE && node->list.n == 1 ? node->list.item[0] : NULL;
    return next && (next->op == JN_EQ || next->op == JN_NE) &&
           ((is_none(next->a) && is_called(node->a, name)) ||
            (is_none(node->a) && is_called(next->a, name)));
}

bool jn_names(const struct jn_list *template, const char *name)
{
    return in_list(template, names, name, 0);
}

bool jn_asks_none(const struct jn_list *template, const char *name)
{
    return in_list(template, asks_none, name, 0);
}
