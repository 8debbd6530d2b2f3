/* Attributes, items and slices of values. */
#include "text/jinja_functions/jinja_access.h"

#include <string.h>

#include "text/jinja_functions/jinja_methods.h"
#include "text/jinja_values/jinja_ops.h"

/* Attributes of `loop`. */
static bool loop_attribute(const struct jv_loop *l, const struct js *name, struct jv *value)
{
    const struct {
        const char *name;
        int64_t i;
    } numbers[] = {
        {"index", (int64_t)l->index0 + 1},
        {"index0", (int64_t)l->index0},
        {"revindex", (int64_t)(l->n - l->index0)},
        {"revindex0", (int64_t)(l->n - l->index0) - 1},
        {"length", (int64_t)l->n},
        {"depth", (int64_t)l->depth0 + 1},
        {"depth0", (int64_t)l->depth0},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (js_is(name, numbers[i].name)) {
            *value = jv_int(numbers[i].i);
            return true;
        }
    if (js_is(name, "first"))
        *value = jv_bool(l->index0 == 0);
    else if (js_is(name, "last"))
        *value = jv_bool(l->index0 + 1 == l->n);
    else if (js_is(name, "previtem"))
        *value = l->index0 ? l->item[l->index0 - 1] : jv_undefined(name, JV_LOOP);
    else if (js_is(name, "nextitem"))
        *value = l->index0 + 1 < l->n ? l->item[l->index0 + 1] : jv_undefined(name, JV_LOOP);
    else
        return false;
    return true;
}

/* Attributes of macros in jinja2, which are refused: undefined ones would be empty text. */
static void check_macro(struct jinja_state *j, const struct js *name)
{
    static const char *const known[] = {"name",          "arguments", "catch_kwargs",
                                        "catch_varargs", "caller",    "explicit_caller"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (js_is(name, known[i]))
            jinja_fail(j, "the attribute \"%s\" of a macro is not known", known[i]);
}

/* An attribute in the narrow sense of Python; false if there is none. */
static bool own_attribute(struct jinja_state *j, struct jv value, const struct js *name,
                          struct jv *attribute)
{
    if (value.kind == JV_UNDEFINED)
        jv_fail_undefined(j, value);
    if (value.kind == JV_LOOP && loop_attribute(value.loop, name, attribute))
        return true;
    if (value.kind == JV_NAMESPACE) {
        const struct jv *found = jv_dict_get(j, value.dict, jv_string(name));
        if (found)
            *attribute = *found;
        return found != NULL;
    }
    if (value.kind == JV_MACRO)
        check_macro(j, name);
    if (value.kind == JV_CYCLER && js_is(name, "current")) {
        *attribute = value.list->item[value.list->next % value.list->n];
        return true;
    }
    if (value.kind == JV_TUPLE && value.list->n == 2 && value.list->next == GROUP_TUPLE &&
        (js_is(name, "grouper") || js_is(name, "list"))) {
        *attribute = value.list->item[js_is(name, "list")];
        return true;
    }
    const struct jinja_builtin *method = jinja_method(value.kind, name);
    if (!method)
        return false;
    if (!method->call) {
        *attribute = jv_undefined(name, value.kind);
        return true;
    }
    jinja_work(j, 2);
    struct jv_method *bound = jinja_alloc(j, 1, sizeof *bound);
    *bound = (struct jv_method){value, method};
    *attribute = (struct jv){.kind = JV_METHOD, .method = bound};
    return true;
}

/* An item; false if there is none. */
static bool own_item(struct jinja_state *j, struct jv value, struct jv key, struct jv *item)
{
    int64_t i;
    if (value.kind == JV_UNDEFINED)
        jv_fail_undefined(j, value);
    if (value.kind == JV_DICT) {
        const struct jv *found = jv_dict_get(j, value.dict, key);
        if (found)
            *item = *found;
        return found != NULL;
    }
    if (!jv_integer(key, &i))
        return false;
    const bool string = value.kind == JV_STRING;
    if (!string && value.kind != JV_LIST && value.kind != JV_TUPLE && value.kind != JV_RANGE)
        return false;
    const int64_t n = (int64_t)(string ? js_count(j, value.s) : value.list->n);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return false;
    if (!string) {
        *item = value.list->item[i];
        return true;
    }
    const size_t start = js_offset(j, value.s, (size_t)i);
    size_t end = start + 1;
    while (end < value.s->len && ((unsigned char)value.s->text[end] & 0xC0) == 0x80)
        end++;
    value.s = js_part(j, value.s, start, end);
    *item = value;
    return true;
}

struct jv jv_attribute(struct jinja_state *j, struct jv value, const struct js *name)
{
    struct jv found;
    if (own_attribute(j, value, name, &found) || own_item(j, value, jv_string(name), &found))
        return found;
    return jv_undefined(name, value.kind);
}

struct jv jv_item(struct jinja_state *j, struct jv value, struct jv key)
{
    struct jv found;
    if (own_item(j, value, key, &found) ||
        (key.kind == JV_STRING && own_attribute(j, value, key.s, &found)))
        return found;
    return jv_undefined(key.kind == JV_STRING ? key.s : NULL, value.kind);
}

/* A bound of a slice, from 0 to n, or from -1 to n - 1 for a negative step. */
static int64_t bound(struct jinja_state *j, struct jv given, int64_t n, int64_t step, bool is_start)
{
    int64_t i;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (given.kind == JV_NONE)
        return is_start == (step < 0) ? high : low;
    if (given.kind == JV_UNDEFINED)
        jv_fail_undefined(j, given);
    i = jv_int_arg(j, given, "a bound of a slice");
    if (i < 0)
        i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static struct jv slice_string(struct jinja_state *j, const struct js *s, int64_t start, int64_t stop,
                              int64_t step, size_t n)
{
    struct js_builder b = {.j = j};
    if (step == 1) {
        const size_t from = js_offset(j, s, (size_t)start);
        const struct js *rest = js_part(j, s, from, s->len);
        return jv_string(js_part(j, rest, 0, stop > start ? js_offset(j, rest, n) : 0));
    }
    const struct jv_list *characters = jv_items_of(j, jv_string(s));
    for (size_t i = 0; i < n; i++)
        js_add_str(&b, characters->item[start + (int64_t)i * step].s);
    return jv_string(js_done(&b));
}

struct jv jv_slice(struct jinja_state *j, struct jv value, struct jv start, struct jv stop,
                   struct jv step)
{
    const bool string = value.kind == JV_STRING;
    if (value.kind == JV_UNDEFINED)
        jv_fail_undefined(j, value);
    if (!string && value.kind != JV_LIST && value.kind != JV_TUPLE && value.kind != JV_RANGE)
        jinja_fail(j, "a value of type %s has no slices", jv_type(value));
    const int64_t by = step.kind == JV_NONE ? 1 : jv_int_arg(j, step, "the step of a slice");
    const int64_t n = (int64_t)(string ? js_count(j, value.s) : value.list->n);
    if (by == 0)
        jinja_fail(j, "the step of a slice is 0");
    if (by == INT64_MIN)
        jinja_fail(j, "the step of a slice is too large");
    const int64_t from = bound(j, start, n, by, true), to = bound(j, stop, n, by, false);
    const size_t count = by > 0 ? (to > from ? (size_t)((to - from - 1) / by) + 1 : 0)
                                : (from > to ? (size_t)((from - to - 1) / -by) + 1 : 0);
    if (string) {
        value.s = slice_string(j, value.s, from, to, by, count).s;
        return value;
    }
    const struct jv part = jv_listed(j, value.kind, count);
    for (size_t i = 0; i < count; i++)
        part.list->item[i] = value.list->item[from + (int64_t)i * by];
    return part;
}

/* One name of a path. */
static struct jv step_into(struct jinja_state *j, struct jv value, const struct js *name)
{
    int64_t i = 0;
    for (size_t at = 0; at < name->len; at++) {
        if (name->text[at] < '0' || name->text[at] > '9' || name->len > 15)
            return jv_item(j, value, jv_string(name));
        i = 10 * i + (name->text[at] - '0');
    }
    return jv_item(j, value, name->len ? jv_int(i) : jv_string(name));
}

struct jv jv_path(struct jinja_state *j, struct jv value, struct jv path, struct jv otherwise)
{
    if (path.kind != JV_STRING) {
        value = jv_item(j, value, path);
        return value.kind == JV_UNDEFINED && otherwise.kind != JV_ABSENT ? otherwise : value;
    }
    for (size_t at = 0; at <= path.s->len;) {
        const char *dot = memchr(path.s->text + at, '.', path.s->len - at);
        const size_t end = dot ? (size_t)(dot - path.s->text) : path.s->len;
        jinja_touch(j, JINJA_STEP + (end - at) / 4);
        value = step_into(j, value, js_part(j, path.s, at, end));
        if (value.kind == JV_UNDEFINED && otherwise.kind != JV_ABSENT)
            value = otherwise;
        at = end + 1;
    }
    return value;
}
