/* Filters that apply other filters and tests, and the look-up of all. */
#include "text/jinja_functions/jinja_filters.h"

#include "text/jinja_functions/jinja_access.h"
#include "text/jinja_functions/jinja_list_filters.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_functions/jinja_tests.h"
#include "text/jinja_functions/jinja_text_filters.h"

#define FILTER(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

static const struct js *name_arg(struct jinja_state *j, const struct jv_args *a, size_t at,
                                 const char *filter)
{
    if (at >= a->n || a->arg[at].kind != JV_STRING)
        jinja_fail(j, "%s() needs a name as a string", filter);
    return a->arg[at].s;
}

static struct jv_args rest_of(const struct jv_args *a, size_t n)
{
    return (struct jv_args){a->arg + n, a->n - n, a->named, a->n_named};
}

/* map(attribute=.., default=..) */
static struct jv map_attribute(struct jinja_state *j, const struct jv_list *items,
                               const struct jv_args *a)
{
    struct jv path = jv_absent(), otherwise = jv_absent();
    for (size_t i = 0; i < a->n_named; i++) {
        if (js_is(a->named[i].name, "attribute"))
            path = a->named[i].value;
        else if (js_is(a->named[i].name, "default"))
            otherwise = a->named[i].value.kind == JV_NONE ? jv_absent() : a->named[i].value;
        else
            jinja_fail(j, "map() does not take an argument \"%.*s\"", (int)a->named[i].name->len,
                       a->named[i].name->text);
    }
    if (path.kind == JV_ABSENT)
        jinja_fail(j, "map() needs the name of a filter, or attribute=");
    const struct jv out = jv_listed(j, JV_ITERATOR, items->n);
    for (size_t i = 0; i < items->n; i++)
        out.list->item[i] = jv_path(j, items->item[i], path, otherwise);
    return out;
}

/* The items of a filter's input; those of none, false or 0 are none. */
static const struct jv_list *input(struct jinja_state *j, struct jv self)
{
    static const struct jv_list nothing;
    return jv_truth(self) ? jv_items_of(j, self) : &nothing;
}

FILTER(map)
{
    const struct jv_list *items = input(j, self);
    if (!a->n)
        return map_attribute(j, items, a);
    const struct js *name = name_arg(j, a, 0, "map");
    const struct jinja_builtin *filter = jinja_filter(name);
    const struct jv_args rest = rest_of(a, 1);
    if (!filter)
        jinja_fail(j, "the filter \"%.*s\" is not known", (int)size_min(name->len, 60), name->text);
    const struct jv out = jv_listed(j, JV_ITERATOR, items->n);
    jinja_enter(j);
    for (size_t i = 0; i < items->n; i++) {
        jinja_work(j, 1);
        out.list->item[i] = jinja_builtin_call(j, filter, items->item[i], &rest);
    }
    jinja_leave(j);
    return out;
}

/* The items that pass a test, or fail it; the test applies to an attribute if `by_attribute`. */
static struct jv choose(struct jinja_state *j, struct jv self, const struct jv_args *a,
                        bool by_attribute, bool wanted)
{
    const struct jv_list *items = input(j, self);
    const struct jinja_builtin *test = NULL;
    struct jv_args rest = {NULL, 0, NULL, 0};
    struct jv_items out = {0};
    if (by_attribute && !a->n)
        jinja_fail(j, "the filter needs the name of an attribute");
    if (a->n > by_attribute) {
        const struct js *name = name_arg(j, a, by_attribute, "a filter");
        test = jinja_test(name);
        rest = rest_of(a, 1 + (size_t)by_attribute);
        if (!test)
            jinja_fail(j, "the test \"%.*s\" is not known", (int)size_min(name->len, 60), name->text);
    }
    for (size_t i = 0; i < items->n; i++) {
        const struct jv item = items->item[i];
        const struct jv about = by_attribute ? jv_path(j, item, a->arg[0], jv_absent()) : item;
        jinja_work(j, 1);
        if (jv_truth(test ? jinja_builtin_call(j, test, about, &rest) : about) == wanted)
            jv_push(j, &out, item);
    }
    return jv_items_done(j, &out, JV_ITERATOR);
}

FILTER(select_items) { return choose(j, self, a, false, true); }
FILTER(reject_items) { return choose(j, self, a, false, false); }
FILTER(selectattr) { return choose(j, self, a, true, true); }
FILTER(rejectattr) { return choose(j, self, a, true, false); }

static const struct jinja_builtin filters[] = {
    {"map", map, NULL, 0},
    {"select", select_items, NULL, 0},
    {"reject", reject_items, NULL, 0},
    {"selectattr", selectattr, NULL, 0},
    {"rejectattr", rejectattr, NULL, 0},
};

struct jinja_table jinja_filter_table(size_t nth)
{
    const struct jinja_table tables[] = {{filters, ARRAY_LEN(filters)},
                                         {jinja_list_filters, JINJA_LIST_FILTERS},
                                         {jinja_text_filters, JINJA_TEXT_FILTERS}};
    return nth < ARRAY_LEN(tables) ? tables[nth] : (struct jinja_table){NULL, 0};
}

const struct jinja_builtin *jinja_filter(const struct js *name)
{
    const struct jinja_builtin *found = NULL;
    for (size_t i = 0; jinja_filter_table(i).n && !found; i++)
        found = jinja_builtin_find(jinja_filter_table(i), name);
    return found;
}
