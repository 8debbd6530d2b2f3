/* Filters on lists, dicts and numbers. */
#include "text/jinja_functions/jinja_list_filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_functions/jinja_access.h"
#include "text/jinja_values/jinja_arith.h"
#include "text/jinja_values/jinja_case.h"
#include "text/jinja_functions/jinja_methods.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"

#define FILTER(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

static bool is_given(struct jv arg) { return arg.kind != JV_ABSENT && arg.kind != JV_NONE; }
static bool flag(struct jv arg) { return arg.kind != JV_ABSENT && jv_truth(arg); }

/* The value, or its attribute if a path is given. */
static struct jv attribute_of(struct jinja_state *j, struct jv value, struct jv path)
{
    return is_given(path) ? jv_path(j, value, path, jv_absent()) : value;
}

/* What a value is sorted or compared by. */
static struct jv key_of(struct jinja_state *j, struct jv value, struct jv path, bool case_sensitive)
{
    const struct jv key = attribute_of(j, value, path);
    return key.kind == JV_STRING && !case_sensitive ? jv_string(js_case(j, key.s, JS_LOWER)) : key;
}

static struct jv copy_of(struct jinja_state *j, const struct jv_list *items, enum jv_kind kind)
{
    const struct jv copy = jv_listed(j, kind, items->n);
    if (items->n)
        memcpy(copy.list->item, items->item, items->n * sizeof *items->item);
    return copy;
}

FILTER(length)
{
    size_t n;
    (void)a;
    if (!jv_length(j, self, &n))
        jinja_fail(j, "a value of type %s has no length", jv_type(self));
    return jv_int((int64_t)n);
}

FILTER(first)
{
    (void)a;
    const struct jv_list *items;
    if (self.kind != JV_ITERATOR) {
        items = jv_items_of(j, self);
        return items->n ? items->item[0] : jv_undefined(NULL, JV_ABSENT);
    }
    return self.list->next < self.list->n ? self.list->item[self.list->next++]
                                          : jv_undefined(NULL, JV_ABSENT);
}

FILTER(last)
{
    (void)a;
    if (self.kind == JV_ITERATOR)
        jinja_fail(j, "last: a generator has no last item; use list first");
    const struct jv_list *items = jv_items_of(j, self);
    return items->n ? items->item[items->n - 1] : jv_undefined(NULL, JV_ABSENT);
}

FILTER(list)
{
    (void)a;
    return copy_of(j, jv_items_of(j, self), JV_LIST);
}

FILTER(reverse)
{
    struct js_builder b = {.j = j};
    const struct jv_list *items = jv_items_of(j, self);
    (void)a;
    if (self.kind == JV_STRING) {
        for (size_t i = items->n; i-- > 0;)
            js_add_str(&b, items->item[i].s);
        return jv_string(js_done(&b));
    }
    const struct jv out = jv_listed(j, self.kind == JV_ITERATOR ? JV_LIST : JV_ITERATOR, items->n);
    for (size_t i = 0; i < items->n; i++)
        out.list->item[i] = items->item[items->n - 1 - i];
    return out;
}

FILTER(join)
{
    struct js_builder b = {.j = j};
    const struct jv_list *items = jv_items_of(j, self);
    const struct js *between = a->arg[0].kind == JV_ABSENT ? &js_empty : jv_str(j, a->arg[0]);
    for (size_t i = 0; i < items->n; i++) {
        if (i)
            js_add_str(&b, between);
        jv_add_str(&b, attribute_of(j, items->item[i], a->arg[1]));
    }
    return jv_string(js_done(&b));
}

/* Keys of a sort by several attributes, as "a,b" names them. */
static struct jv multi_key(struct jinja_state *j, struct jv value, struct jv path, bool case_sensitive)
{
    struct jv_items keys = {0};
    if (path.kind != JV_STRING)
        return key_of(j, value, path, case_sensitive);
    for (size_t at = 0; at <= path.s->len;) {
        const char *comma = memchr(path.s->text + at, ',', path.s->len - at);
        const size_t end = comma ? (size_t)(comma - path.s->text) : path.s->len;
        jinja_touch(j, JINJA_STEP + (end - at) / 4);
        jv_push(j, &keys, key_of(j, value, jv_string(js_part(j, path.s, at, end)), case_sensitive));
        at = end + 1;
    }
    return jv_items_done(j, &keys, JV_LIST);
}

FILTER(sort)
{
    const struct jv out = copy_of(j, jv_items_of(j, self), JV_LIST);
    struct jv *key = jinja_alloc(j, out.list->n, sizeof *key);
    for (size_t i = 0; i < out.list->n; i++)
        key[i] = multi_key(j, out.list->item[i], a->arg[2], flag(a->arg[1]));
    jv_sort(j, out.list->item, key, out.list->n, flag(a->arg[0]));
    return out;
}

FILTER(unique)
{
    const struct jv_list *items = jv_items_of(j, self);
    const struct jv seen = jv_dict_new(j);
    struct jv_items out = {0};
    for (size_t i = 0; i < items->n; i++) {
        const struct jv key = key_of(j, items->item[i], a->arg[1], flag(a->arg[0]));
        if (jv_dict_get(j, seen.dict, key))
            continue;
        jv_dict_set(j, seen.dict, key, jv_none());
        jv_push(j, &out, items->item[i]);
    }
    return jv_items_done(j, &out, JV_ITERATOR);
}

static struct jv extreme(struct jinja_state *j, struct jv self, const struct jv_args *a, bool greatest)
{
    const struct jv_list *items = jv_items_of(j, self);
    size_t best = 0;
    struct jv best_key = jv_none();
    for (size_t i = 0; i < items->n; i++) {
        const struct jv key = key_of(j, items->item[i], a->arg[1], flag(a->arg[0]));
        const int order = i ? jv_order(j, key, best_key) : 1;
        if (i == 0 || (greatest ? order > 0 : order < 0)) {
            best = i;
            best_key = key;
        }
    }
    return items->n ? items->item[best] : jv_undefined(NULL, JV_ABSENT);
}

FILTER(min) { return extreme(j, self, a, false); }
FILTER(max) { return extreme(j, self, a, true); }

FILTER(sum)
{
    const struct jv_list *items = jv_items_of(j, self);
    struct jv total = jv_or(a->arg[1], jv_int(0));
    if (total.kind == JV_STRING)
        jinja_fail(j, "sum() does not take strings; use join");
    for (size_t i = 0; i < items->n; i++)
        total = jv_arith(j, JV_ADD, total, attribute_of(j, items->item[i], a->arg[0]));
    return total;
}

FILTER(groupby)
{
    struct jv sorted = copy_of(j, jv_items_of(j, self), JV_LIST);
    const size_t n = sorted.list->n;
    const bool case_sensitive = flag(a->arg[2]);
    const struct jv otherwise = is_given(a->arg[1]) ? a->arg[1] : jv_absent();
    struct jv *key = jinja_alloc(j, n, sizeof *key);
    struct jv_items groups = {0}, group = {0};
    for (size_t pass = 0; pass < 2; pass++) { /* keys before and after sorting */
        for (size_t i = 0; i < n; i++) {
            key[i] = jv_path(j, sorted.list->item[i], a->arg[0], otherwise);
            if (key[i].kind == JV_STRING && !case_sensitive)
                key[i] = jv_string(js_case(j, key[i].s, JS_LOWER));
        }
        if (pass == 0)
            jv_sort(j, sorted.list->item, key, n, false);
    }
    for (size_t i = 0; i < n; i++) {
        jv_push(j, &group, sorted.list->item[i]);
        if (i + 1 < n && jv_equal(j, key[i], key[i + 1]))
            continue;
        const struct jv about = jv_path(j, group.item[0], a->arg[0], otherwise);
        const struct jv pair = jv_pair(j, about, jv_items_done(j, &group, JV_LIST));
        pair.list->next = GROUP_TUPLE;
        jv_push(j, &groups, pair);
        group = (struct jv_items){0};
    }
    return jv_items_done(j, &groups, JV_LIST);
}

FILTER(batch)
{
    const struct jv_list *items = jv_items_of(j, self);
    const int64_t size = jv_int_arg(j, a->arg[0], "the size of batches");
    struct jv_items out = {0}, batch = {0};
    for (size_t i = 0; i < items->n; i++) {
        if (batch.n && (int64_t)batch.n == size) {
            jv_push(j, &out, jv_items_done(j, &batch, JV_LIST));
            batch = (struct jv_items){0};
        }
        jv_push(j, &batch, items->item[i]);
    }
    if (batch.n) {
        while (is_given(a->arg[1]) && (int64_t)batch.n < size)
            jv_push(j, &batch, a->arg[1]);
        jv_push(j, &out, jv_items_done(j, &batch, JV_LIST));
    }
    return jv_items_done(j, &out, JV_ITERATOR);
}

FILTER(slice)
{
    const struct jv_list *items = jv_items_of(j, self);
    const int64_t slices = jv_int_arg(j, a->arg[0], "the number of slices");
    if (slices < 1)
        jinja_fail(j, "slice: the number of slices is below 1");
    const size_t n = (size_t)slices, each = items->n / n, longer = items->n % n;
    const struct jv out = jv_listed(j, JV_ITERATOR, n);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t size = each + (i < longer);
        struct jv_items part = {0};
        for (size_t k = 0; k < size; k++)
            jv_push(j, &part, items->item[at++]);
        if (is_given(a->arg[1]) && i >= longer)
            jv_push(j, &part, a->arg[1]);
        out.list->item[i] = jv_items_done(j, &part, JV_LIST);
    }
    return out;
}

static struct jv pairs_of(struct jinja_state *j, struct jv self, const char *filter)
{
    if (self.kind != JV_DICT)
        jinja_fail(j, "%s: a dict is expected, not a value of type %s", filter, jv_type(self));
    const struct jv out = jv_listed(j, JV_LIST, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        out.list->item[i] = jv_pair(j, self.dict->entry[i].key, self.dict->entry[i].value);
    return out;
}

FILTER(items)
{
    (void)a;
    struct jv out = self.kind == JV_UNDEFINED ? jv_listed(j, JV_LIST, 0) : pairs_of(j, self, "items");
    out.kind = JV_ITERATOR;
    return out;
}

FILTER(dictsort)
{
    if (self.kind == JV_UNDEFINED)
        jv_fail_undefined(j, self);
    const struct jv out = pairs_of(j, self, "dictsort");
    const struct jv by = jv_or(a->arg[1], jv_string(js_literal(j, "key")));
    const bool by_value = by.kind == JV_STRING && js_is(by.s, "value");
    if (!by_value && !(by.kind == JV_STRING && js_is(by.s, "key")))
        jinja_fail(j, "dictsort: by is neither \"key\" nor \"value\"");
    struct jv *key = jinja_alloc(j, out.list->n, sizeof *key);
    for (size_t i = 0; i < out.list->n; i++)
        key[i] = key_of(j, out.list->item[i].list->item[by_value], jv_none(), flag(a->arg[0]));
    jv_sort(j, out.list->item, key, out.list->n, flag(a->arg[2]));
    return out;
}

FILTER(attr)
{
    const struct js *name = jv_str(j, a->arg[0]);
    return self.kind == JV_DICT && !jinja_method(JV_DICT, name) ? jv_undefined(name, self.kind)
                                                                : jv_attribute(j, self, name);
}

FILTER(otherwise)
{
    const bool replaced = self.kind == JV_UNDEFINED || (flag(a->arg[1]) && !jv_truth(self));
    (void)j;
    return replaced ? jv_or(a->arg[0], jv_string(&js_empty)) : self;
}

/* ---- numbers ---- */

FILTER(absolute)
{
    int64_t i;
    if (self.kind == JV_FLOAT)
        return jv_float(fabs(self.f));
    (void)a;
    return jv_integer(self, &i) && i >= 0 ? jv_int(i) : jv_negate(j, self, false);
}

/* Reads a number as int() and float() of Python do: blanks around it, underscores between digits. */
static bool read_number(const struct js *s, int64_t base, struct jv *value, bool real)
{
    char text[64], *end;
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) {
        const bool inner = i && i + 1 < s->len && s->text[i - 1] != '_';
        if (s->text[i] == '_' && inner && s->text[i - 1] != ' ' && s->text[i + 1] != ' ')
            continue;
        if (n + 1 == sizeof text || !s->text[i])
            return false;
        text[n++] = s->text[i];
    }
    text[n] = 0;
    while (n && strchr(" \t\n\r", text[n - 1]))
        text[--n] = 0;
    const char *at = text + strspn(text, " \t\n\r");
    const char *digits = at + (*at == '-' || *at == '+');
    if (!*digits || strchr(" \t\n\r-+", *digits) || (real && strpbrk(at, "xXpP")) || strchr(at, '('))
        return false;
    if (real)
        *value = jv_float(strtod(at, &end));
    else
        *value = jv_int(strtoll(at, &end, (int)base));
    if (!real && (value->i == INT64_MAX || value->i == INT64_MIN))
        return false;
    return *end == 0;
}

FILTER(to_int)
{
    const struct jv otherwise_value = jv_or(a->arg[0], jv_int(0));
    const int64_t base = jv_int_arg(j, jv_or(a->arg[1], jv_int(10)), "the base");
    struct jv value = self;
    double x;
    int64_t i;
    if (self.kind == JV_UNDEFINED)
        jv_fail_undefined(j, self);
    if (base != 10 && base != 16 && base != 8 && base != 2)
        jinja_fail(j, "int: the base %lld is not known", (long long)base);
    jinja_work(j, 4);
    if (self.kind == JV_STRING && read_number(self.s, base, &value, false))
        return value;
    if (self.kind == JV_STRING && !read_number(self.s, 10, &value, true))
        return otherwise_value;
    if (jv_integer(value, &i))
        return jv_int(i);
    if (!jv_number(value, &x) || !isfinite(x))
        return otherwise_value;
    if (fabs(x) >= 9.2e18)
        jinja_fail(j, "an integer exceeds 64 bits");
    return jv_int((int64_t)x);
}

FILTER(to_float)
{
    struct jv value = self;
    double x;
    if (self.kind == JV_UNDEFINED)
        jv_fail_undefined(j, self);
    jinja_work(j, 4);
    if (self.kind == JV_STRING && !read_number(self.s, 10, &value, true))
        return jv_or(a->arg[0], jv_float(0));
    return jv_number(value, &x) ? jv_float(x) : jv_or(a->arg[0], jv_float(0));
}

/* Rounds to a number of decimals, half to even, by the decimal digits that the number has. */
static double round_decimals(double x, int64_t precision)
{
    char text[400];
    if (!isfinite(x) || precision > 17)
        return x;
    if (precision < 0) {
        const double unit = pow(10, (double)-precision);
        return nearbyint(x / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, x);
    return strtod(text, NULL);
}

FILTER(rounded)
{
    const int64_t precision = jv_int_arg(j, jv_or(a->arg[0], jv_int(0)), "the precision");
    const struct js *method =
        a->arg[1].kind == JV_ABSENT ? js_literal(j, "common") : jv_str(j, a->arg[1]);
    double x;
    int64_t i;
    jinja_work(j, 32);
    if (self.kind == JV_UNDEFINED)
        jv_fail_undefined(j, self);
    if (!jv_number(self, &x))
        jinja_fail(j, "round: a number is expected, not a value of type %s", jv_type(self));
    if (precision > 300 || precision < -300)
        jinja_fail(j, "round: the precision is out of range");
    if (js_is(method, "common") && jv_integer(self, &i) && precision >= 0)
        return jv_int(i);
    if (js_is(method, "common"))
        return self.kind == JV_FLOAT ? jv_float(round_decimals(x, precision))
                                     : jv_int((int64_t)round_decimals(x, precision));
    const bool up = js_is(method, "ceil");
    if (!up && !js_is(method, "floor"))
        jinja_fail(j, "round: the method is not common, ceil or floor");
    const double unit = pow(10, (double)precision);
    return jv_float((up ? ceil(x * unit) : floor(x * unit)) / unit);
}

const struct jinja_builtin jinja_list_filters[JINJA_LIST_FILTERS] = {
    {"length", length, "", 0},
    {"count", length, "", 0},
    {"first", first, "", 0},
    {"last", last, "", 0},
    {"list", list, "", 0},
    {"reverse", reverse, "", KEEPS_MARKUP},
    {"join", join, "d attribute", 0},
    {"sort", sort, "reverse case_sensitive attribute", 0},
    {"unique", unique, "case_sensitive attribute", 0},
    {"min", min, "case_sensitive attribute", 0},
    {"max", max, "case_sensitive attribute", 0},
    {"sum", sum, "attribute start", 0},
    {"groupby", groupby, "attribute default case_sensitive", 1},
    {"batch", batch, "linecount fill_with", 1},
    {"slice", slice, "slices fill_with", 1},
    {"items", items, "", 0},
    {"dictsort", dictsort, "case_sensitive by reverse", 0},
    {"attr", attr, "name", 1},
    {"default", otherwise, "default_value boolean", 0},
    {"d", otherwise, "default_value boolean", 0},
    {"abs", absolute, "", 0},
    {"int", to_int, "default base", 0},
    {"float", to_float, "default", 0},
    {"round", rounded, "precision method", 0},
};
