/* Methods of dicts, lists, loops and other values; those of strings are in jinja_str_methods.c. */
#include "text/jinja_functions/jinja_methods.h"

#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_functions/jinja_str_methods.h"

#define METHOD(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

/* ---- dicts ---- */

METHOD(dict_get)
{
    if (!jv_is_key(a->arg[0]) && a->arg[0].kind != JV_UNDEFINED)
        jinja_fail(j, "a value of type %s cannot be a key", jv_type(a->arg[0]));
    const struct jv *found = jv_dict_get(j, self.dict, a->arg[0]);
    return found ? *found : jv_or(a->arg[1], jv_none());
}

METHOD(dict_items)
{
    (void)a;
    const struct jv view = jv_listed(j, JV_VIEW, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        view.list->item[i] = jv_pair(j, self.dict->entry[i].key, self.dict->entry[i].value);
    return view;
}

METHOD(dict_keys)
{
    (void)a;
    const struct jv view = jv_listed(j, JV_VIEW, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        view.list->item[i] = self.dict->entry[i].key;
    return view;
}

METHOD(dict_values)
{
    (void)a;
    const struct jv view = jv_listed(j, JV_VIEW, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        view.list->item[i] = self.dict->entry[i].value;
    return view;
}

METHOD(copy)
{
    (void)j;
    (void)a;
    return self; /* values do not change */
}

/* Methods without a function would change their value: to templates they are undefined. */
static const struct jinja_builtin dict_methods[] = {
    {"get", dict_get, "key default", 1},
    {"items", dict_items, "", 0},
    {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},
    {"copy", copy, "", 0},
    {"clear", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},
    {"popitem", NULL, NULL, 0},
    {"setdefault", NULL, NULL, 0},
    {"update", NULL, NULL, 0},
};

/* ---- lists ---- */

/* An optional bound of a search in n items, from the end if it is negative. */
static size_t bound(struct jinja_state *j, struct jv given, size_t n, size_t otherwise)
{
    if (given.kind == JV_ABSENT)
        return otherwise;
    const int64_t i = jv_int_arg(j, given, "a bound of index()");
    if (i < 0)
        return (uint64_t) - (i + 1) < n ? (size_t)((int64_t)n + i) : 0;
    return size_min((size_t)i, n);
}

METHOD(list_index)
{
    const size_t start = bound(j, a->arg[1], self.list->n, 0);
    const size_t stop = bound(j, a->arg[2], self.list->n, self.list->n);
    for (size_t i = start; i < stop; i++)
        if (jv_equal(j, self.list->item[i], a->arg[0]))
            return jv_int((int64_t)i);
    jinja_fail(j, "index(): the value is not in the list");
}

METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++)
        n += jv_equal(j, self.list->item[i], a->arg[0]);
    return jv_int(n);
}

static const struct jinja_builtin tuple_methods[] = {
    {"index", list_index, "value start stop", 1},
    {"count", list_count, "value", 1},
};

static const struct jinja_builtin range_methods[] = {
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
};

static const struct jinja_builtin list_methods[] = {
    {"index", list_index, "value start stop", 1},
    {"count", list_count, "value", 1},
    {"copy", copy, "", 0},
    {"append", NULL, NULL, 0},
    {"clear", NULL, NULL, 0},
    {"extend", NULL, NULL, 0},
    {"insert", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},
    {"remove", NULL, NULL, 0},
    {"reverse", NULL, NULL, 0},
    {"sort", NULL, NULL, 0},
};

/* ---- loop, cycler ---- */

METHOD(loop_cycle)
{
    if (!a->n || a->n_named)
        jinja_fail(j, "loop.cycle() needs values");
    return a->arg[self.loop->index0 % a->n];
}

METHOD(loop_changed)
{
    struct jv_loop *loop = self.loop;
    bool same = loop->changed && loop->changed->n == a->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = jv_equal(j, loop->changed->item[i], a->arg[i]);
    if (!same) {
        const struct jv list = jv_listed(j, JV_LIST, a->n);
        for (size_t i = 0; i < a->n; i++)
            list.list->item[i] = a->arg[i];
        loop->changed = list.list;
    }
    return jv_bool(!same);
}

static const struct jinja_builtin loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
};

METHOD(cycler_next)
{
    (void)j;
    (void)a;
    return self.list->item[self.list->next++ % self.list->n];
}

METHOD(cycler_reset)
{
    (void)j;
    (void)a;
    self.list->next = 0;
    return jv_none();
}

static const struct jinja_builtin cycler_methods[] = {
    {"next", cycler_next, "", 0},
    {"reset", cycler_reset, "", 0},
};

struct jinja_table jinja_method_table(enum jv_kind kind)
{
    const struct jinja_table tables[JV_KINDS] = {
        [JV_DICT] = {dict_methods, ARRAY_LEN(dict_methods)},
        [JV_LIST] = {list_methods, ARRAY_LEN(list_methods)},
        [JV_TUPLE] = {tuple_methods, ARRAY_LEN(tuple_methods)},
        [JV_RANGE] = {range_methods, ARRAY_LEN(range_methods)},
        [JV_LOOP] = {loop_methods, ARRAY_LEN(loop_methods)},
        [JV_CYCLER] = {cycler_methods, ARRAY_LEN(cycler_methods)},
        [JV_STRING] = {jinja_str_methods, JINJA_STR_METHODS},
    };
    return tables[kind];
}

const struct jinja_builtin *jinja_method(enum jv_kind kind, const struct js *name)
{
    return jinja_builtin_find(jinja_method_table(kind), name);
}
