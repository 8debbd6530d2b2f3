/* Truth, equality, order, membership and iteration of template values. */
#include "text/jinja_values/jinja_ops.h"

#include <string.h>

#include "text/utf8.h"

static bool is_listed(struct jv v) { return v.kind >= JV_LIST && v.kind <= JV_TUPLE; }

bool jv_truth(struct jv value)
{
    switch (value.kind) {
    case JV_ABSENT:
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return value.b;
    case JV_INT: return value.i != 0;
    case JV_FLOAT: return value.f != 0;
    case JV_STRING: return value.s->len != 0;
    case JV_DICT: return value.dict->n != 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: return value.list->n != 0;
    default: return true;
    }
}

bool jv_number(struct jv value, double *x)
{
    if (value.kind == JV_FLOAT)
        *x = value.f;
    else if (value.kind == JV_INT)
        *x = (double)value.i;
    else if (value.kind == JV_BOOL)
        *x = value.b;
    else
        return false;
    return true;
}

bool jv_integer(struct jv value, int64_t *i)
{
    if (value.kind != JV_INT && value.kind != JV_BOOL)
        return false;
    *i = value.kind == JV_INT ? value.i : value.b;
    return true;
}

int64_t jv_int_arg(struct jinja_state *j, struct jv value, const char *what)
{
    int64_t i;
    if (!jv_integer(value, &i))
        jinja_fail(j, "%s is of type %s, an integer is expected", what, jv_type(value));
    return i;
}

bool jv_same(struct jinja_state *j, struct jv a, struct jv b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JV_NONE: return true;
    case JV_BOOL: return a.b == b.b;
    case JV_INT: return a.i == b.i;
    case JV_FLOAT: return memcmp(&a.f, &b.f, sizeof a.f) == 0;
    case JV_STRING: jinja_touch(j, a.s->len / 4); return js_equal(a.s, b.s);
    default: return a.list == b.list;
    }
}

static bool equal_lists(struct jinja_state *j, const struct jv_list *a, const struct jv_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jv_equal(j, a->item[i], b->item[i]))
            return false;
    return true;
}

static bool equal_dicts(struct jinja_state *j, const struct jv_dict *a, const struct jv_dict *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jv *other = jv_dict_get(j, b, a->entry[i].key);
        if (!other || !jv_equal(j, a->entry[i].value, *other))
            return false;
    }
    return true;
}

bool jv_equal(struct jinja_state *j, struct jv a, struct jv b)
{
    double x, y;
    bool equal = false;
    jinja_work(j, 1);
    if (a.kind == JV_INT && b.kind == JV_INT)
        return a.i == b.i;
    if (jv_number(a, &x) && jv_number(b, &y))
        return x == y;
    if (a.kind != b.kind)
        return false;
    jinja_enter(j);
    switch (a.kind) {
    case JV_UNDEFINED:
    case JV_NONE: equal = true; break;
    case JV_STRING:
        jinja_touch(j, a.s->len == b.s->len ? a.s->len / 4 : 0);
        equal = js_equal(a.s, b.s);
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE: equal = a.list == b.list || equal_lists(j, a.list, b.list); break;
    case JV_DICT: equal = a.dict == b.dict || equal_dicts(j, a.dict, b.dict); break;
    default: equal = jv_same(j, a, b); break;
    }
    jinja_leave(j);
    return equal;
}

static int order_lists(struct jinja_state *j, const struct jv_list *a, const struct jv_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jv_equal(j, a->item[i], b->item[i]))
            return jv_order(j, a->item[i], b->item[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jv_order(struct jinja_state *j, struct jv a, struct jv b)
{
    double x, y;
    jinja_work(j, 1);
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        jv_fail_undefined(j, a.kind == JV_UNDEFINED ? a : b);
    if (a.kind == JV_INT && b.kind == JV_INT)
        return (a.i > b.i) - (a.i < b.i);
    if (jv_number(a, &x) && jv_number(b, &y))
        return (x > y) - (x < y);
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        jinja_touch(j, size_min(a.s->len, b.s->len) / 4);
        return js_order(a.s, b.s);
    }
    if (!is_listed(a) || a.kind != b.kind)
        jinja_fail(j, "values of types %s and %s have no order", jv_type(a), jv_type(b));
    jinja_enter(j);
    const int order = order_lists(j, a.list, b.list);
    jinja_leave(j);
    return order;
}

bool jv_contains(struct jinja_state *j, struct jv container, struct jv value)
{
    if (container.kind == JV_STRING) {
        if (value.kind == JV_UNDEFINED)
            jv_fail_undefined(j, value);
        if (value.kind != JV_STRING)
            jinja_fail(j, "a string contains strings, not a value of type %s", jv_type(value));
        return js_find(j, container.s, value.s, 0, container.s->len) != SIZE_MAX;
    }
    if (container.kind == JV_DICT) {
        if (!jv_is_key(value) && value.kind != JV_UNDEFINED)
            jinja_fail(j, "a value of type %s cannot be a key", jv_type(value));
        return jv_dict_get(j, container.dict, value) != NULL;
    }
    const struct jv_list *items = jv_items_of(j, container);
    for (size_t i = 0; i < items->n; i++)
        if (jv_equal(j, items->item[i], value))
            return true;
    return false;
}

bool jv_is_iterable(struct jv value)
{
    switch (value.kind) {
    case JV_UNDEFINED:
    case JV_STRING:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
    case JV_VIEW:
    case JV_ITERATOR: return true;
    default: return false;
    }
}

static const struct jv_list *characters(struct jinja_state *j, const struct js *s)
{
    const struct jv list = jv_listed(j, JV_LIST, js_count(j, s));
    jinja_work(j, list.list->n);
    for (size_t i = 0, at = 0; at < s->len; i++) {
        uint32_t code;
        const size_t after = at + utf8_decode(s->text + at, &code);
        list.list->item[i] = jv_string(js_part(j, s, at, after));
        at = after;
    }
    return list.list;
}

static const struct jv_list *read_on(struct jinja_state *j, struct jv_list *iterator)
{
    struct jv_list *rest = jinja_alloc(j, 1, sizeof *rest);
    *rest = (struct jv_list){iterator->item + iterator->next, iterator->n - iterator->next, 0};
    iterator->next = iterator->n;
    return rest;
}

const struct jv_list *jv_items_of(struct jinja_state *j, struct jv value)
{
    static const struct jv_list nothing;
    struct jv keys;
    switch (value.kind) {
    case JV_UNDEFINED: return &nothing;
    case JV_STRING: return characters(j, value.s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: jinja_touch(j, 4 * value.list->n); return value.list;
    case JV_ITERATOR:
        jinja_touch(j, 4 * (value.list->n - value.list->next));
        return read_on(j, value.list);
    case JV_DICT:
        keys = jv_listed(j, JV_LIST, value.dict->n);
        for (size_t i = 0; i < value.dict->n; i++)
            keys.list->item[i] = value.dict->entry[i].key;
        return keys.list;
    default: jinja_fail(j, "a value of type %s cannot be iterated over", jv_type(value));
    }
}

bool jv_length(struct jinja_state *j, struct jv value, size_t *length)
{
    switch (value.kind) {
    case JV_UNDEFINED: *length = 0; return true;
    case JV_STRING: *length = js_count(j, value.s); return true;
    case JV_DICT: *length = value.dict->n; return true;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: *length = value.list->n; return true;
    case JV_LOOP: *length = value.loop->n; return true;
    default: return false;
    }
}

/* Merge sort of [low, high): stable, and bounded by the limit of steps. */
static void merge(struct jinja_state *j, struct jv *pair, struct jv *space, size_t n, bool reverse)
{
    if (n < 2)
        return;
    const size_t half = n / 2;
    merge(j, pair, space, half, reverse);
    merge(j, pair + 2 * half, space, n - half, reverse);
    memcpy(space, pair, 2 * n * sizeof *pair);
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        bool second = a == half;
        if (a < half && b < n) {
            const int order = jv_order(j, space[2 * b], space[2 * a]);
            second = reverse ? order > 0 : order < 0;
        }
        const size_t from = second ? b++ : a++;
        pair[2 * i] = space[2 * from];
        pair[2 * i + 1] = space[2 * from + 1];
    }
}

void jv_sort(struct jinja_state *j, struct jv *value, struct jv *key, size_t n, bool reverse)
{
    struct jv *pair = jinja_alloc(j, n, 2 * sizeof *pair);
    struct jv *space = jinja_alloc(j, n, 2 * sizeof *space);
    for (size_t i = 0; i < n; i++) {
        pair[2 * i] = key ? key[i] : value[i];
        pair[2 * i + 1] = value[i];
    }
    merge(j, pair, space, n, reverse);
    for (size_t i = 0; i < n; i++)
        value[i] = pair[2 * i + 1];
}
