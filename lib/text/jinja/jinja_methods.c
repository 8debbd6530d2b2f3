/* Calling functions of the interpreter; methods, attributes and items of values. */
#include "text/jinja/jinja_methods.h"

#include "text/jinja/jinja_text.h"
#include "text/jinja/jinja_value.h"
#include "text/utf8.h"

/* ---- calling functions of the interpreter: binds arguments to parameters ---- */

enum { MOST_PARAMS = 8 };

const struct jinja_builtin *jinja_builtin_find(struct jinja_table table, const struct js *name)
{
    for (size_t i = 0; i < table.n; i++)
        if (js_is(name, table.row[i].name))
            return &table.row[i];
    return NULL;
}

/* Index of the parameter called `name`, and the number of all; the index is that number if there is
 * none. */
static size_t find_param(const char *params, const struct js *name, size_t *total)
{
    size_t found = SIZE_MAX, n = 0;
    for (const char *at = params; *at;) {
        const size_t len = strcspn(at, " ");
        if (name && name->len == len && memcmp(name->text, at, len) == 0)
            found = n;
        n++;
        at += len + (at[len] == ' ');
    }
    *total = n;
    return found == SIZE_MAX ? n : found;
}

static struct jv call_builtin(struct jinja_state *j, const struct jinja_builtin *builtin,
                              struct jv self, const struct jv_args *args)
{
    const struct jv result = builtin->call(j, self, args);
    return (builtin->required & KEEPS_MARKUP) && jv_is_markup(self) ? jv_as_markup(j, result) : result;
}

struct jv jinja_builtin_call(struct jinja_state *j, const struct jinja_builtin *builtin, struct jv self,
                             const struct jv_args *args)
{
    struct jv bound[MOST_PARAMS];
    size_t total;
    jinja_work(j, 2);
    if (!builtin->params)
        return call_builtin(j, builtin, self, args);
    (void)find_param(builtin->params, NULL, &total);
    if (args->n > total)
        jinja_fail(j, "%s() takes at most %zu arguments, not %zu", builtin->name, total, args->n);
    for (size_t i = 0; i < MOST_PARAMS; i++)
        bound[i] = i < args->n ? args->arg[i] : jv_absent();
    for (size_t i = 0; i < args->n_named; i++) {
        const struct js *name = args->named[i].name;
        const size_t at = find_param(builtin->params, name, &total);
        if (at == total || bound[at].kind != JV_ABSENT)
            jinja_fail(j, "%s() %s an argument \"%.*s\"", builtin->name,
                       at == total ? "does not take" : "is given two values for", (int)name->len,
                       name->text);
        bound[at] = args->named[i].value;
    }
    const unsigned required = builtin->required % KEEPS_MARKUP;
    for (size_t i = 0; i < required; i++)
        if (bound[i].kind == JV_ABSENT)
            jinja_fail(j, "%s() needs %u argument%s", builtin->name, required,
                       required == 1 ? "" : "s");
    return call_builtin(j, builtin, self, &(struct jv_args){bound, total, NULL, 0});
}

/* ---- methods of strings, with the meaning that Python gives them ---- */

static const struct js *string_arg(struct jinja_state *j, struct jv arg, const char *what)
{
    if (arg.kind == JV_UNDEFINED)
        jv_fail_undefined(j, arg);
    if (arg.kind != JV_STRING)
        jinja_fail(j, "%s is of type %s, a string is expected", what, jv_type(arg));
    return arg.s;
}

/* An argument that may be none or not given. */
static const struct js *string_or_null(struct jinja_state *j, struct jv arg, const char *what)
{
    return arg.kind == JV_ABSENT || arg.kind == JV_NONE ? NULL : string_arg(j, arg, what);
}

JINJA_VALUE(strip,
            jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "strip()"), JS_LEFT | JS_RIGHT)))
JINJA_VALUE(lstrip, jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "lstrip()"), JS_LEFT)))
JINJA_VALUE(rstrip, jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "rstrip()"), JS_RIGHT)))

/* ---- splitting ---- */

static void push_part(struct jinja_state *j, struct jv_items *items, const struct js *s, size_t start,
                      size_t end)
{
    jv_push(j, items, jv_string(js_part(j, s, start, end)));
}

/* Splits at white space, from the left. */
static struct jv split_blanks(struct jinja_state *j, const struct js *s, int64_t most)
{
    struct jv_items items = {0};
    const struct js *rest = js_strip(j, s, NULL, JS_LEFT);
    while (rest->len) {
        size_t end = 0;
        uint32_t code;
        if (most >= 0 && (int64_t)items.n == most)
            end = rest->len; /* with the white space at its end */
        while (end < rest->len) {
            const unsigned len = utf8_decode(rest->text + end, &code);
            jinja_touch(j, 4);
            if (js_is_space(code))
                break;
            end += len;
        }
        push_part(j, &items, rest, 0, end);
        rest = js_strip(j, js_part(j, rest, end, rest->len), NULL, JS_LEFT);
    }
    return jv_items_done(j, &items, JV_LIST);
}

static const struct js *separator(struct jinja_state *j, struct jv arg, const char *method)
{
    const struct js *by = string_or_null(j, arg, "a separator");
    if (by && !by->len)
        jinja_fail(j, "%s() needs a separator that is not empty", method);
    return by;
}

static void turn_round(struct jv_items *items)
{
    for (size_t i = 0; i < items->n / 2; i++) {
        const struct jv first = items->item[i];
        items->item[i] = items->item[items->n - 1 - i];
        items->item[items->n - 1 - i] = first;
    }
}

/* Splits at a separator, from the left, or from the right, where the parts are found in reverse. */
static struct jv split_at(struct jinja_state *j, const struct js *s, const struct js *by, int64_t most,
                          bool from_right)
{
    struct jv_items items = {0};
    size_t start = 0, end = s->len; /* of what is left */
    for (;;) {
        const size_t at = most >= 0 && (int64_t)items.n == most ? SIZE_MAX
                          : from_right                          ? js_rfind(j, s, by, 0, end)
                                                                : js_find(j, s, by, start, end);
        if (at == SIZE_MAX)
            break;
        push_part(j, &items, s, from_right ? at + by->len : start, from_right ? end : at);
        *(from_right ? &end : &start) = from_right ? at : at + by->len;
    }
    push_part(j, &items, s, start, end);
    if (from_right)
        turn_round(&items);
    return jv_items_done(j, &items, JV_LIST);
}

JINJA_FUNCTION(split)
{
    const struct js *by = separator(j, a->arg[0], "split");
    const int64_t most = jv_int_arg(j, jv_or(a->arg[1], jv_int(-1)), "maxsplit");
    return by ? split_at(j, self.s, by, most, false) : split_blanks(j, self.s, most);
}

JINJA_FUNCTION(rsplit)
{
    const struct js *by = separator(j, a->arg[0], "rsplit");
    const int64_t most = jv_int_arg(j, jv_or(a->arg[1], jv_int(-1)), "maxsplit");
    if (by)
        return split_at(j, self.s, by, most, true);
    const struct jv all = split_blanks(j, self.s, -1);
    const size_t n = all.list->n;
    if (most < 0 || (size_t)most >= n)
        return all;
    const struct jv last = jv_listed(j, JV_LIST, (size_t)most + 1);
    const struct js *first = all.list->item[n - 1 - (size_t)most].s;
    const size_t end = (size_t)(first->text - self.s->text) + first->len;
    last.list->item[0] = jv_string(js_part(j, self.s, 0, end));
    for (size_t i = 0; i < (size_t)most; i++)
        last.list->item[i + 1] = all.list->item[n - (size_t)most + i];
    return last;
}

JINJA_FUNCTION(splitlines)
{
    struct jv_items items = {0};
    const struct js *s = self.s;
    const bool keep = a->arg[0].kind != JV_ABSENT && jv_truth(a->arg[0]);
    size_t start = 0;
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        const size_t end = at;
        jinja_touch(j, 2);
        at += utf8_decode(s->text + at, &code);
        if (!((code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
              code == 0x2028 || code == 0x2029))
            continue;
        if (code == '\r' && at < s->len && s->text[at] == '\n')
            at++;
        push_part(j, &items, s, start, keep ? at : end);
        start = at;
    }
    if (start < s->len)
        push_part(j, &items, s, start, s->len);
    return jv_items_done(j, &items, JV_LIST);
}

/* Three parts: what is before the first or last separator, the separator, and what follows it. */
static struct jv partition_at(struct jinja_state *j, const struct js *s, struct jv sep, bool last)
{
    const struct js *by = string_arg(j, sep, "the separator");
    const struct jv parts = jv_listed(j, JV_TUPLE, 3);
    if (!by->len)
        jinja_fail(j, "%spartition() needs a separator that is not empty", last ? "r" : "");
    const size_t at = (last ? js_rfind : js_find)(j, s, by, 0, s->len);
    for (size_t i = 0; i < 3; i++)
        parts.list->item[i] = jv_string(&js_empty);
    if (at == SIZE_MAX) {
        parts.list->item[last ? 2 : 0] = jv_string(s);
        return parts;
    }
    parts.list->item[0] = jv_string(js_part(j, s, 0, at));
    parts.list->item[1] = jv_string(js_part(j, s, at, at + by->len));
    parts.list->item[2] = jv_string(js_part(j, s, at + by->len, s->len));
    return parts;
}

JINJA_VALUE(partition, partition_at(j, self.s, a->arg[0], false))
JINJA_VALUE(rpartition, partition_at(j, self.s, a->arg[0], true))

/* ---- searching ---- */

/* Byte range that the optional arguments start and end select; false if it is empty and cannot hold
 * even the empty string. */
static bool range_of(struct jinja_state *j, const struct js *s, struct jv first, struct jv last,
                     size_t *start, size_t *end)
{
    const int64_t n = (int64_t)js_count(j, s);
    int64_t from = first.kind == JV_ABSENT || first.kind == JV_NONE ? 0 : jv_int_arg(j, first, "start");
    int64_t to = last.kind == JV_ABSENT || last.kind == JV_NONE ? n : jv_int_arg(j, last, "end");
    from = from < 0 ? (from < -n ? 0 : from + n) : from;
    to = to < 0 ? (to < -n ? 0 : to + n) : to > n ? n : to;
    if (from > to)
        return false;
    *start = js_offset(j, s, (size_t)from);
    *end = js_offset(j, s, (size_t)to);
    return true;
}

static bool is_at(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
                  size_t end, bool at_end)
{
    jinja_touch(j, 4 + what->len / 4);
    return what->len <= end - start &&
           memcmp(s->text + (at_end ? end - what->len : start), what->text, what->len) == 0;
}

static struct jv has_end(struct jinja_state *j, struct jv self, const struct jv_args *a, bool at_end)
{
    const char *name = at_end ? "the argument of endswith()" : "the argument of startswith()";
    size_t start, end;
    const struct jv what = a->arg[0];
    bool has = false;
    if (!range_of(j, self.s, a->arg[1], a->arg[2], &start, &end))
        return jv_bool(false);
    if (what.kind != JV_TUPLE)
        return jv_bool(is_at(j, self.s, string_arg(j, what, name), start, end, at_end));
    for (size_t i = 0; i < what.list->n; i++)
        has |= is_at(j, self.s, string_arg(j, what.list->item[i], name), start, end, at_end);
    return jv_bool(has);
}

JINJA_VALUE(startswith, has_end(j, self, a, false))
JINJA_VALUE(endswith, has_end(j, self, a, true))

static int64_t find_in(struct jinja_state *j, struct jv self, const struct jv_args *a, bool last)
{
    size_t start, end;
    const struct js *what = string_arg(j, a->arg[0], "what to find");
    if (!range_of(j, self.s, a->arg[1], a->arg[2], &start, &end))
        return -1;
    const size_t at = (last ? js_rfind : js_find)(j, self.s, what, start, end);
    return at == SIZE_MAX ? -1 : (int64_t)js_count(j, js_part(j, self.s, 0, at));
}

JINJA_VALUE(find, jv_int(find_in(j, self, a, false)))
JINJA_VALUE(rfind, jv_int(find_in(j, self, a, true)))

static struct jv index_in(struct jinja_state *j, struct jv self, const struct jv_args *a, bool last)
{
    const int64_t at = find_in(j, self, a, last);
    if (at < 0)
        jinja_fail(j, "index(): the string is not found");
    return jv_int(at);
}

JINJA_VALUE(index_of, index_in(j, self, a, false))
JINJA_VALUE(rindex_of, index_in(j, self, a, true))

JINJA_FUNCTION(count)
{
    size_t start, end;
    int64_t n = 0;
    const struct js *what = string_arg(j, a->arg[0], "what to count");
    if (!range_of(j, self.s, a->arg[1], a->arg[2], &start, &end))
        return jv_int(0);
    if (!what->len)
        return jv_int((int64_t)js_count(j, js_part(j, self.s, start, end)) + 1);
    for (; (start = js_find(j, self.s, what, start, end)) != SIZE_MAX; start += what->len)
        n++;
    return jv_int(n);
}

/* ---- changing ---- */

const struct js *js_replace(struct jinja_state *j, const struct js *s, const struct js *old,
                            const struct js *new, int64_t most)
{
    struct js_builder b = {.j = j};
    size_t at = 0;
    for (int64_t i = 0; most < 0 || i < most; i++) {
        const size_t found = js_find(j, s, old, at, s->len);
        if (found == SIZE_MAX)
            break;
        js_add_part(&b, s, at, found);
        js_add_str(&b, new);
        at = found + old->len;
        if (old->len)
            continue;
        if (at == s->len) { /* the empty string is found between all characters, and at the end */
            return js_done(&b);
        }
        size_t next = at + 1;
        while (next < s->len && ((unsigned char)s->text[next] & 0xC0) == 0x80)
            next++;
        js_add_part(&b, s, at, next);
        at = next;
    }
    js_add_part(&b, s, at, s->len);
    return js_done(&b);
}

JINJA_FUNCTION(replace)
{
    const struct js *new = string_arg(j, a->arg[1], "the replacement");
    if (jv_is_markup(self))
        new = jv_escape(j, a->arg[1]).s;
    return jv_string(js_replace(j, self.s, string_arg(j, a->arg[0], "what to replace"), new,
                                jv_int_arg(j, jv_or(a->arg[2], jv_int(-1)), "count")));
}

static struct jv without_end(struct jinja_state *j, struct jv self, struct jv end, bool at_end)
{
    const struct js *what = string_arg(j, end, at_end ? "the suffix" : "the prefix");
    const size_t len = self.s->len;
    if (!is_at(j, self.s, what, 0, len, at_end))
        return self;
    return jv_string(js_part(j, self.s, at_end ? 0 : what->len, at_end ? len - what->len : len));
}

JINJA_VALUE(removeprefix, without_end(j, self, a->arg[0], false))
JINJA_VALUE(removesuffix, without_end(j, self, a->arg[0], true))

JINJA_FUNCTION(join)
{
    struct js_builder b = {.j = j};
    const struct jv_list *items = jv_items_of(j, a->arg[0]);
    for (size_t i = 0; i < items->n; i++) {
        if (i)
            js_add_str(&b, self.s);
        js_add_str(&b, jv_is_markup(self) ? jv_escape(j, items->item[i]).s
                                          : string_arg(j, items->item[i], "an item of join()"));
    }
    return jv_string(js_done(&b));
}

/* str.format() with {}, {0} and {name}. */
JINJA_FUNCTION(format)
{
    struct js_builder b = {.j = j};
    const struct js *s = self.s;
    size_t next = 0;
    if (jv_is_markup(self))
        jinja_fail(j, "format(): text that is safe or escaped cannot be a format");
    for (size_t at = 0; at < s->len; at++) {
        const char c = s->text[at];
        if ((c == '{' || c == '}') && at + 1 < s->len && s->text[at + 1] == c) {
            js_add_part(&b, s, at, at + 1);
            at++;
            continue;
        }
        if (c != '{' && c != '}') {
            js_add_part(&b, s, at, at + 1);
            continue;
        }
        const size_t end = js_find(j, s, js_literal(j, "}"), at, s->len);
        if (c == '}' || end == SIZE_MAX)
            jinja_fail(j, "format(): a brace has no partner");
        const struct js *name = js_part(j, s, at + 1, end);
        struct jv value = jv_absent();
        size_t number = 0;
        for (size_t i = 0; i < name->len && number < 1000; i++)
            number = name->text[i] >= '0' && name->text[i] <= '9'
                         ? 10 * number + (size_t)(name->text[i] - '0')
                         : 1000;
        if (!name->len)
            number = next++;
        if (number < a->n)
            value = a->arg[number];
        jinja_touch(j, a->n_named * (2 + name->len / 4));
        for (size_t i = 0; i < a->n_named; i++)
            if (js_equal(a->named[i].name, name))
                value = a->named[i].value;
        if (value.kind == JV_ABSENT)
            jinja_fail(j, "format(): \"{%.*s}\" is not known", (int)size_min(name->len, 40),
                       name->text);
        jv_add_str(&b, value);
        at = end;
    }
    return jv_string(js_done(&b));
}

JINJA_VALUE(to_upper, jv_string(js_case(j, self.s, JS_UPPER)))
JINJA_VALUE(to_lower, jv_string(js_case(j, self.s, JS_LOWER)))
JINJA_VALUE(to_title, jv_string(js_case(j, self.s, JS_TITLE)))
JINJA_VALUE(to_capital, jv_string(js_case(j, self.s, JS_CAPITAL)))
JINJA_VALUE(all_alpha, jv_bool(js_is_all(j, self.s, JS_ALPHA)))
JINJA_VALUE(all_digit, jv_bool(js_is_all(j, self.s, JS_DIGIT)))
JINJA_VALUE(all_alnum, jv_bool(js_is_all(j, self.s, JS_ALNUM)))
JINJA_VALUE(all_space, jv_bool(js_is_all(j, self.s, JS_SPACE)))
JINJA_VALUE(all_lower, jv_bool(js_is_all(j, self.s, JS_IS_LOWER)))
JINJA_VALUE(all_upper, jv_bool(js_is_all(j, self.s, JS_IS_UPPER)))

static const struct jinja_builtin str_methods[] = {
    {"strip", strip, "chars", KEEPS_MARKUP},
    {"lstrip", lstrip, "chars", KEEPS_MARKUP},
    {"rstrip", rstrip, "chars", KEEPS_MARKUP},
    {"split", split, "sep maxsplit", KEEPS_MARKUP},
    {"rsplit", rsplit, "sep maxsplit", KEEPS_MARKUP},
    {"splitlines", splitlines, "keepends", KEEPS_MARKUP},
    {"partition", partition, "sep", 1 + KEEPS_MARKUP},
    {"rpartition", rpartition, "sep", 1 + KEEPS_MARKUP},
    {"startswith", startswith, "prefix start end", 1},
    {"endswith", endswith, "suffix start end", 1},
    {"find", find, "sub start end", 1},
    {"rfind", rfind, "sub start end", 1},
    {"index", index_of, "sub start end", 1},
    {"rindex", rindex_of, "sub start end", 1},
    {"count", count, "sub start end", 1},
    {"replace", replace, "old new count", 2 + KEEPS_MARKUP},
    {"removeprefix", removeprefix, "prefix", 1 + KEEPS_MARKUP},
    {"removesuffix", removesuffix, "suffix", 1 + KEEPS_MARKUP},
    {"join", join, "iterable", 1 + KEEPS_MARKUP},
    {"format", format, NULL, 0},
    {"upper", to_upper, "", KEEPS_MARKUP},
    {"lower", to_lower, "", KEEPS_MARKUP},
    {"title", to_title, "", KEEPS_MARKUP},
    {"capitalize", to_capital, "", KEEPS_MARKUP},
    {"isalpha", all_alpha, "", 0},
    {"isdigit", all_digit, "", 0},
    {"isalnum", all_alnum, "", 0},
    {"isspace", all_space, "", 0},
    {"islower", all_lower, "", 0},
    {"isupper", all_upper, "", 0},
};

/* Methods of dicts, lists, loops and other values; those of strings are above. */

/* ---- dicts ---- */

JINJA_FUNCTION(dict_get)
{
    if (!jv_is_key(a->arg[0]) && a->arg[0].kind != JV_UNDEFINED)
        jinja_fail(j, "a value of type %s cannot be a key", jv_type(a->arg[0]));
    const struct jv *found = jv_dict_get(j, self.dict, a->arg[0]);
    return found ? *found : jv_or(a->arg[1], jv_none());
}

/* The keys of a dict, its values, or pairs of both. */
static struct jv dict_view(struct jinja_state *j, const struct jv_dict *dict, bool keys, bool values)
{
    const struct jv view = jv_listed(j, JV_VIEW, dict->n);
    for (size_t i = 0; i < dict->n; i++) {
        const struct jv_entry *e = &dict->entry[i];
        view.list->item[i] = !values ? e->key : !keys ? e->value : jv_pair(j, e->key, e->value);
    }
    return view;
}

JINJA_VALUE(dict_items, dict_view(j, self.dict, true, true))
JINJA_VALUE(dict_keys, dict_view(j, self.dict, true, false))
JINJA_VALUE(dict_values, dict_view(j, self.dict, false, true))
JINJA_VALUE(copy, self) /* values do not change */

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
static size_t index_bound(struct jinja_state *j, struct jv given, size_t n, size_t otherwise)
{
    if (given.kind == JV_ABSENT)
        return otherwise;
    const int64_t i = jv_int_arg(j, given, "a bound of index()");
    if (i < 0)
        return (uint64_t) - (i + 1) < n ? (size_t)((int64_t)n + i) : 0;
    return size_min((size_t)i, n);
}

JINJA_FUNCTION(list_index)
{
    const size_t start = index_bound(j, a->arg[1], self.list->n, 0);
    const size_t stop = index_bound(j, a->arg[2], self.list->n, self.list->n);
    for (size_t i = start; i < stop; i++)
        if (jv_equal(j, self.list->item[i], a->arg[0]))
            return jv_int((int64_t)i);
    jinja_fail(j, "index(): the value is not in the list");
}

JINJA_FUNCTION(list_count)
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

/* ---- loop ---- */

JINJA_FUNCTION(loop_cycle)
{
    if (!a->n || a->n_named)
        jinja_fail(j, "loop.cycle() needs values");
    return a->arg[self.loop->index0 % a->n];
}

static const struct jinja_builtin loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0},
};

struct jinja_table jinja_method_table(enum jv_kind kind)
{
    const struct jinja_table tables[JV_KINDS] = {
        [JV_DICT] = {dict_methods, ARRAY_LEN(dict_methods)},
        [JV_LIST] = {list_methods, ARRAY_LEN(list_methods)},
        [JV_TUPLE] = {tuple_methods, ARRAY_LEN(tuple_methods)},
        [JV_RANGE] = {range_methods, ARRAY_LEN(range_methods)},
        [JV_LOOP] = {loop_methods, ARRAY_LEN(loop_methods)},
        [JV_STRING] = {str_methods, ARRAY_LEN(str_methods)},
    };
    return tables[kind];
}

/* The method of that name that values of a kind have, or NULL; one whose `call` is NULL may not be used. */
static const struct jinja_builtin *jinja_method(enum jv_kind kind, const struct js *name)
{
    return jinja_builtin_find(jinja_method_table(kind), name);
}

/* ---- attributes, items and slices of values ---- */

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
    const struct jinja_builtin *method = jinja_method(value.kind, name);
    if (!method)
        return false;
    if (!method->call) {
        *attribute = jv_undefined(name, value.kind);
        return true;
    }
    jinja_work(j, 2);
    struct jv_method *slice_bound = jinja_alloc(j, 1, sizeof *slice_bound);
    *slice_bound = (struct jv_method){value, method};
    *attribute = (struct jv){.kind = JV_METHOD, .method = slice_bound};
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
static int64_t slice_bound(struct jinja_state *j, struct jv given, int64_t n, int64_t step,
                           bool is_start)
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
    const int64_t from = slice_bound(j, start, n, by, true), to = slice_bound(j, stop, n, by, false);
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
