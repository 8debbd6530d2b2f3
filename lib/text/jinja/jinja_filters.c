/* Filters, tests and global functions of templates, as tables. */
#include "text/jinja/jinja_filters.h"

#include "text/jinja/jinja_methods.h"
#include "text/jinja/jinja_text.h"
#include "text/jinja/jinja_value.h"
#include "text/utf8.h"

/* ---- tests of templates ---- */

/* Whether a % b is `rest`. */
static bool leaves(struct jinja_state *j, struct jv a, struct jv b, double rest)
{
    double x;
    return jv_number(jv_arith(j, JV_MOD, a, b), &x) && x == rest;
}

JINJA_VALUE(is_defined, jv_bool(self.kind != JV_UNDEFINED))
JINJA_VALUE(is_undefined, jv_bool(self.kind == JV_UNDEFINED))
JINJA_VALUE(is_none, jv_bool(self.kind == JV_NONE))
JINJA_VALUE(is_boolean, jv_bool(self.kind == JV_BOOL))
JINJA_VALUE(is_true, jv_bool(self.kind == JV_BOOL && self.b))
JINJA_VALUE(is_false, jv_bool(self.kind == JV_BOOL && !self.b))
JINJA_VALUE(is_integer, jv_bool(self.kind == JV_INT))
JINJA_VALUE(is_float, jv_bool(self.kind == JV_FLOAT))
JINJA_VALUE(is_number, jv_bool(self.kind == JV_INT || self.kind == JV_FLOAT || self.kind == JV_BOOL))
JINJA_VALUE(is_string, jv_bool(self.kind == JV_STRING))
JINJA_VALUE(is_mapping, jv_bool(self.kind == JV_DICT))
JINJA_VALUE(is_escaped, jv_bool(jv_is_markup(self)))
JINJA_VALUE(is_seq, jv_bool(jv_has(self, JV_SEQUENCE)))
JINJA_VALUE(is_iterable, jv_bool(jv_has(self, JV_ITERABLE)))
JINJA_VALUE(is_called, jv_bool(jv_has(self, JV_CALLABLE)))
JINJA_VALUE(is_lower, jv_bool(js_is_all(j, jv_str(j, self), JS_IS_LOWER)))
JINJA_VALUE(is_upper, jv_bool(js_is_all(j, jv_str(j, self), JS_IS_UPPER)))
JINJA_VALUE(is_odd, jv_bool(leaves(j, self, jv_int(2), 1)))
JINJA_VALUE(is_even, jv_bool(leaves(j, self, jv_int(2), 0)))
JINJA_VALUE(is_divisible, jv_bool(leaves(j, self, a->arg[0], 0)))
JINJA_VALUE(is_same, jv_bool(jv_same(j, self, a->arg[0])))
JINJA_VALUE(is_in, jv_bool(jv_contains(j, a->arg[0], self)))
JINJA_VALUE(is_eq, jv_bool(jv_equal(j, self, a->arg[0])))
JINJA_VALUE(is_ne, jv_bool(!jv_equal(j, self, a->arg[0])))
JINJA_VALUE(is_lt, jv_bool(jv_order(j, self, a->arg[0]) < 0))
JINJA_VALUE(is_le, jv_bool(jv_order(j, self, a->arg[0]) <= 0))
JINJA_VALUE(is_gt, jv_bool(jv_order(j, self, a->arg[0]) > 0))
JINJA_VALUE(is_ge, jv_bool(jv_order(j, self, a->arg[0]) >= 0))

/* ---- functions that templates can call by name ---- */

enum { MOST_RANGE = 100000 }; /* as in the sandbox of jinja2 */

JINJA_FUNCTION(range)
{
    int64_t start = 0, stop, step = 1;
    if (a->n < 1 || a->n > 3 || a->n_named)
        jinja_fail(j, "range() takes 1 to 3 integers");
    stop = jv_int_arg(j, a->arg[a->n > 1], "an argument of range()");
    if (a->n > 1)
        start = jv_int_arg(j, a->arg[0], "an argument of range()");
    if (a->n > 2)
        step = jv_int_arg(j, a->arg[2], "an argument of range()");
    if (step == 0)
        jinja_fail(j, "range(): the step is 0");
    const bool empty = step > 0 ? stop <= start : stop >= start;
    const uint64_t distance =
        step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t n = empty ? 0 : (distance - 1) / by + 1;
    if (n > MOST_RANGE)
        jinja_fail(j, "range() has more than %d numbers", MOST_RANGE);
    const struct jv out = jv_listed(j, JV_RANGE, (size_t)n);
    for (size_t i = 0; i < out.list->n; i++)
        out.list->item[i] = jv_int((int64_t)((uint64_t)start + i * (uint64_t)step));
    return out;
}

/* dict(), also of a namespace's names: a mapping or pairs, then names. */
static struct jv make_dict(struct jinja_state *j, const struct jv_args *a, const char *function)
{
    const struct jv out = jv_dict_new(j);
    if (a->n > 1)
        jinja_fail(j, "%s() takes at most 1 argument without a name", function);
    if (a->n && a->arg[0].kind == JV_DICT) {
        for (size_t i = 0; i < a->arg[0].dict->n; i++)
            jv_dict_set(j, out.dict, a->arg[0].dict->entry[i].key, a->arg[0].dict->entry[i].value);
    } else if (a->n) {
        const struct jv_list *pairs = jv_items_of(j, a->arg[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const struct jv_list *pair = jv_items_of(j, pairs->item[i]);
            if (pair->n != 2)
                jinja_fail(j, "%s() takes pairs of key and value", function);
            jv_dict_set(j, out.dict, pair->item[0], pair->item[1]);
        }
    }
    for (size_t i = 0; i < a->n_named; i++)
        jv_dict_set(j, out.dict, jv_string(a->named[i].name), a->named[i].value);
    return out;
}

JINJA_VALUE(dict, make_dict(j, a, "dict"))

JINJA_FUNCTION(name_space)
{
    struct jv out = make_dict(j, a, "namespace");
    for (size_t i = 0; i < out.dict->n; i++) {
        const struct jv key = out.dict->entry[i].key;
        if (key.kind == JV_STRING && key.s->len && key.s->text[0] == '_')
            jinja_fail(j, "names of a namespace cannot begin with an underscore");
    }
    out.kind = JV_NAMESPACE;
    return out;
}

JINJA_FUNCTION(raise_exception)
{
    const struct js *why = jv_str(j, a->arg[0]);
    jinja_fail(j, "the template refuses the conversation: %.*s", (int)size_min(why->len, 300),
               why->text);
}

JINJA_FUNCTION(strftime_now)
{
    char format[256], text[1024];
    jinja_work(j, 100);
    if (a->arg[0].kind != JV_STRING || a->arg[0].s->len + 2 > sizeof format)
        jinja_fail(j, "strftime_now() needs a format, a string of up to %zu bytes", sizeof format - 2);
    /* A blank in front, since the text of an empty result and an error are alike. */
    format[0] = ' ';
    memcpy(format + 1, a->arg[0].s->text, a->arg[0].s->len);
    format[a->arg[0].s->len + 1] = 0;
    const size_t len = strftime(text, sizeof text, format, &j->now);
    if (!len)
        jinja_fail(j, "strftime_now(): the text is longer than %zu bytes", sizeof text);
    char *copy = jinja_alloc(j, len, 1);
    memcpy(copy, text + 1, len - 1);
    return jv_string(js_new(j, copy, len - 1, js_any_content(a->arg[0].s)));
}

/* ---- filters on lists, dicts and numbers ---- */

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
    return jv_copied(j, kind, items->item, items->n);
}

JINJA_FUNCTION(length)
{
    size_t n;
    if (!jv_length(j, self, &n))
        jinja_fail(j, "a value of type %s has no length", jv_type(self));
    return jv_int((int64_t)n);
}

JINJA_FUNCTION(first)
{
    const struct jv_list *items;
    if (self.kind != JV_ITERATOR) {
        items = jv_items_of(j, self);
        return items->n ? items->item[0] : jv_undefined(NULL, JV_ABSENT);
    }
    return self.list->next < self.list->n ? self.list->item[self.list->next++]
                                          : jv_undefined(NULL, JV_ABSENT);
}

JINJA_FUNCTION(last)
{
    if (self.kind == JV_ITERATOR)
        jinja_fail(j, "last: a generator has no last item; use list first");
    const struct jv_list *items = jv_items_of(j, self);
    return items->n ? items->item[items->n - 1] : jv_undefined(NULL, JV_ABSENT);
}

JINJA_VALUE(list, copy_of(j, jv_items_of(j, self), JV_LIST))

JINJA_FUNCTION(reverse)
{
    struct js_builder b = {.j = j};
    const struct jv_list *items = jv_items_of(j, self);
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

JINJA_FUNCTION(join)
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

JINJA_FUNCTION(sort)
{
    const struct jv out = copy_of(j, jv_items_of(j, self), JV_LIST);
    struct jv *key = jinja_alloc(j, out.list->n, sizeof *key);
    for (size_t i = 0; i < out.list->n; i++)
        key[i] = multi_key(j, out.list->item[i], a->arg[2], flag(a->arg[1]));
    jv_sort(j, out.list->item, key, out.list->n, flag(a->arg[0]));
    return out;
}

JINJA_FUNCTION(unique)
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

JINJA_VALUE(min, extreme(j, self, a, false))
JINJA_VALUE(max, extreme(j, self, a, true))

JINJA_FUNCTION(sum)
{
    const struct jv_list *items = jv_items_of(j, self);
    struct jv total = jv_or(a->arg[1], jv_int(0));
    if (total.kind == JV_STRING)
        jinja_fail(j, "sum() does not take strings; use join");
    for (size_t i = 0; i < items->n; i++)
        total = jv_arith(j, JV_ADD, total, attribute_of(j, items->item[i], a->arg[0]));
    return total;
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

JINJA_FUNCTION(items)
{
    struct jv out = self.kind == JV_UNDEFINED ? jv_listed(j, JV_LIST, 0) : pairs_of(j, self, "items");
    out.kind = JV_ITERATOR;
    return out;
}

JINJA_FUNCTION(dictsort)
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

JINJA_FUNCTION(otherwise)
{
    const bool replaced = self.kind == JV_UNDEFINED || (flag(a->arg[1]) && !jv_truth(self));
    return replaced ? jv_or(a->arg[0], jv_string(&js_empty)) : self;
}

/* ---- numbers ---- */

JINJA_FUNCTION(absolute)
{
    int64_t i;
    if (self.kind == JV_FLOAT)
        return jv_float(fabs(self.f));
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

JINJA_FUNCTION(to_int)
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

JINJA_FUNCTION(to_float)
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

JINJA_FUNCTION(rounded)
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

/* ---- filters on text, and tojson ---- */

JINJA_VALUE(to_upper, jv_string(js_case(j, jv_str(j, self), JS_UPPER)))
JINJA_VALUE(to_lower, jv_string(js_case(j, jv_str(j, self), JS_LOWER)))
JINJA_VALUE(to_capital, jv_string(js_case(j, jv_str(j, self), JS_CAPITAL)))
JINJA_VALUE(to_title, jv_string(js_case(j, jv_str(j, self), JS_WORDS)))

JINJA_FUNCTION(trim)
{
    const struct jv chars = a->arg[0];
    const bool given = chars.kind != JV_ABSENT && chars.kind != JV_NONE;
    if (given && chars.kind != JV_STRING)
        jinja_fail(j, "trim: characters are expected, not a value of type %s", jv_type(chars));
    return jv_string(js_strip(j, jv_str(j, self), given ? chars.s : NULL, JS_LEFT | JS_RIGHT));
}

JINJA_VALUE(string, jv_string(jv_str(j, self)))

JINJA_FUNCTION(replace)
{
    const bool limited = a->arg[2].kind != JV_ABSENT && a->arg[2].kind != JV_NONE;
    return jv_string(js_replace(j, jv_str(j, self), jv_str(j, a->arg[0]), jv_str(j, a->arg[1]),
                                limited ? jv_int_arg(j, a->arg[2], "count") : -1));
}

static const struct js *spaces(struct jinja_state *j, int64_t n)
{
    struct js_builder b = {.j = j};
    jinja_work(j, n > 0 ? (size_t)n : 0);
    for (int64_t i = 0; i < n; i++)
        js_add(&b, " ", 1, false);
    return js_done(&b);
}

/* Whether a character ends a line, for str.splitlines() of Python. */
static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

JINJA_FUNCTION(indent)
{
    const struct jv width = jv_or(a->arg[0], jv_int(4));
    struct js_builder b = {.j = j};
    if (self.kind != JV_STRING)
        jinja_fail(j, "indent: a string is expected, not a value of type %s", jv_type(self));
    const struct js *s = self.s, *by = width.kind == JV_STRING
                                           ? width.s
                                           : spaces(j, jv_int_arg(j, width, "the width"));
    const bool blank = flag(a->arg[2]);
    size_t start = 0;
    if (flag(a->arg[1]))
        js_add_str(&b, by);
    for (size_t at = 0; at <= s->len;) {
        uint32_t code = '\n';
        size_t after = at + 1;
        if (at < s->len)
            after = at + utf8_decode(s->text + at, &code);
        jinja_touch(j, 2);
        if (!ends_line(code)) {
            at = after;
            continue;
        }
        if (start && (blank || at > start))
            js_add_str(&b, by);
        js_add_part(&b, s, start, at);
        if (code == '\r' && after < s->len && s->text[after] == '\n')
            after++;
        if (at < s->len)
            js_add(&b, "\n", 1, js_is_content(s, at));
        at = start = after;
    }
    return jv_string(js_done(&b));
}

JINJA_FUNCTION(format)
{
    if (a->n_named)
        jinja_fail(j, "format: named values are not known");
    if (jv_is_markup(self))
        jinja_fail(j, "format: text that is safe or escaped cannot be a format");
    return jv_string(jinja_format(j, jv_str(j, self), jv_copied(j, JV_TUPLE, a->arg, a->n)));
}

JINJA_VALUE(escape, jv_escape(j, self))
JINJA_VALUE(safe, jv_as_markup(j, jv_string(jv_str(j, self))))

JINJA_FUNCTION(tojson)
{
    const struct jv ascii = a->arg[0], indent = a->arg[1], separators = a->arg[2];
    struct jinja_json_style style = {.ascii = flag(ascii), .sort_keys = flag(a->arg[3])};
    if (indent.kind == JV_STRING)
        style.indent = indent.s;
    else if (indent.kind != JV_ABSENT && indent.kind != JV_NONE)
        style.indent = spaces(j, jv_int_arg(j, indent, "indent"));
    style.item = js_literal(j, style.indent ? "," : ", ");
    style.key = js_literal(j, ": ");
    if (separators.kind != JV_ABSENT && separators.kind != JV_NONE) {
        const struct jv_list *pair = jv_items_of(j, separators);
        if (pair->n != 2 || pair->item[0].kind != JV_STRING || pair->item[1].kind != JV_STRING)
            jinja_fail(j, "tojson: separators are two strings");
        style.item = pair->item[0].s;
        style.key = pair->item[1].s;
    }
    return jv_string(jv_to_json(j, self, &style));
}

/* ---- filters that apply other filters and tests, and lookup by name ---- */

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

JINJA_FUNCTION(map)
{
    const struct jv_list *items = input(j, self);
    if (!a->n)
        return map_attribute(j, items, a);
    const struct js *name = name_arg(j, a, 0, "map");
    const struct jinja_builtin *filter = jinja_named(JINJA_FILTERS, name);
    const struct jv_args rest = rest_of(a, 1);
    if (!filter)
        jinja_fail(j, "the filter \"%.*s\" is not known", JS_SHORT(name));
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
static struct jv filter_by_test(struct jinja_state *j, struct jv self, const struct jv_args *a,
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
        test = jinja_named(JINJA_TESTS, name);
        rest = rest_of(a, 1 + (size_t)by_attribute);
        if (!test)
            jinja_fail(j, "the test \"%.*s\" is not known", JS_SHORT(name));
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

JINJA_VALUE(select_items, filter_by_test(j, self, a, false, true))
JINJA_VALUE(reject_items, filter_by_test(j, self, a, false, false))
JINJA_VALUE(selectattr, filter_by_test(j, self, a, true, true))
JINJA_VALUE(rejectattr, filter_by_test(j, self, a, true, false))

/* ---- tables ---- */

static const struct jinja_builtin filters[] = {
    {"map", map, NULL, 0},
    {"select", select_items, NULL, 0},
    {"reject", reject_items, NULL, 0},
    {"selectattr", selectattr, NULL, 0},
    {"rejectattr", rejectattr, NULL, 0},
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
    {"items", items, "", 0},
    {"dictsort", dictsort, "case_sensitive by reverse", 0},
    {"default", otherwise, "default_value boolean", 0},
    {"d", otherwise, "default_value boolean", 0},
    {"abs", absolute, "", 0},
    {"int", to_int, "default base", 0},
    {"float", to_float, "default", 0},
    {"round", rounded, "precision method", 0},
    {"upper", to_upper, "", KEEPS_MARKUP},
    {"lower", to_lower, "", KEEPS_MARKUP},
    {"capitalize", to_capital, "", KEEPS_MARKUP},
    {"title", to_title, "", 0},
    {"trim", trim, "chars", KEEPS_MARKUP},
    {"string", string, "", KEEPS_MARKUP},
    {"safe", safe, "", 0},
    {"replace", replace, "old new count", 2},
    {"indent", indent, "width first blank", KEEPS_MARKUP},
    {"format", format, NULL, 0},
    {"escape", escape, "", 0},
    {"e", escape, "", 0},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys", 0},
};

static const struct jinja_builtin tests[] = {
    {"defined", is_defined, "", 0},  {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},        {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},        {"false", is_false, "", 0},
    {"integer", is_integer, "", 0},  {"float", is_float, "", 0},
    {"number", is_number, "", 0},    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},  {"escaped", is_escaped, "", 0},
    {"sequence", is_seq, "", 0},     {"iterable", is_iterable, "", 0},
    {"callable", is_called, "", 0},  {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},      {"odd", is_odd, "", 0},
    {"even", is_even, "", 0},        {"divisibleby", is_divisible, "num", 1},
    {"sameas", is_same, "other", 1}, {"in", is_in, "seq", 1},
    {"eq", is_eq, "other", 1},       {"equalto", is_eq, "other", 1},
    {"==", is_eq, "other", 1},       {"ne", is_ne, "other", 1},
    {"!=", is_ne, "other", 1},       {"lt", is_lt, "other", 1},
    {"lessthan", is_lt, "other", 1}, {"<", is_lt, "other", 1},
    {"le", is_le, "other", 1},       {"<=", is_le, "other", 1},
    {"gt", is_gt, "other", 1},       {"greaterthan", is_gt, "other", 1},
    {">", is_gt, "other", 1},        {"ge", is_ge, "other", 1},
    {">=", is_ge, "other", 1},
};

static const struct jinja_builtin globals[] = {
    {"range", range, NULL, 0},
    {"dict", dict, NULL, 0},
    {"namespace", name_space, NULL, 0},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
};

struct jinja_table jinja_functions(enum jinja_set set)
{
    const struct jinja_table tables[JINJA_SETS] = {[JINJA_FILTERS] = {filters, ARRAY_LEN(filters)},
                                                   [JINJA_TESTS] = {tests, ARRAY_LEN(tests)},
                                                   [JINJA_GLOBALS] = {globals, ARRAY_LEN(globals)}};
    return tables[set];
}

const struct jinja_builtin *jinja_named(enum jinja_set set, const struct js *name)
{
    return jinja_builtin_find(jinja_functions(set), name);
}
