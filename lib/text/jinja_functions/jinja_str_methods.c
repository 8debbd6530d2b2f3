/* Methods of strings, with the meaning that Python gives them. */
#include "text/jinja_functions/jinja_str_methods.h"

#include <string.h>

#include "text/jinja_values/jinja_case.h"
#include "text/jinja_values/jinja_markup.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"
#include "text/utf8.h"

#define METHOD(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

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

METHOD(strip)
{
    return jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "strip()"), JS_LEFT | JS_RIGHT));
}
METHOD(lstrip)
{
    return jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "lstrip()"), JS_LEFT));
}
METHOD(rstrip)
{
    return jv_string(js_strip(j, self.s, string_or_null(j, a->arg[0], "rstrip()"), JS_RIGHT));
}

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

static struct jv split_at(struct jinja_state *j, const struct js *s, const struct js *by, int64_t most)
{
    struct jv_items items = {0};
    size_t at = 0;
    if (!by->len)
        jinja_fail(j, "split() needs a separator that is not empty");
    for (;;) {
        const size_t end =
            most >= 0 && (int64_t)items.n == most ? SIZE_MAX : js_find(j, s, by, at, s->len);
        push_part(j, &items, s, at, end == SIZE_MAX ? s->len : end);
        if (end == SIZE_MAX)
            break;
        at = end + by->len;
    }
    return jv_items_done(j, &items, JV_LIST);
}

METHOD(split)
{
    const struct js *by = string_or_null(j, a->arg[0], "the separator of split()");
    const int64_t most = jv_int_arg(j, jv_or(a->arg[1], jv_int(-1)), "maxsplit");
    return by ? split_at(j, self.s, by, most) : split_blanks(j, self.s, most);
}

/* Splits at a separator, from the right; the parts are found in reverse. */
static struct jv rsplit_at(struct jinja_state *j, const struct js *s, const struct js *by, int64_t most)
{
    struct jv_items items = {0};
    size_t end = s->len;
    if (!by->len)
        jinja_fail(j, "rsplit() needs a separator that is not empty");
    for (;;) {
        const size_t at = most >= 0 && (int64_t)items.n == most ? SIZE_MAX : js_rfind(j, s, by, 0, end);
        push_part(j, &items, s, at == SIZE_MAX ? 0 : at + by->len, end);
        if (at == SIZE_MAX)
            break;
        end = at;
    }
    const struct jv out = jv_items_done(j, &items, JV_LIST);
    for (size_t i = 0; i < items.n / 2; i++) {
        const struct jv first = items.item[i];
        items.item[i] = items.item[items.n - 1 - i];
        items.item[items.n - 1 - i] = first;
    }
    return out;
}

METHOD(rsplit)
{
    const struct js *by = string_or_null(j, a->arg[0], "the separator of rsplit()");
    const int64_t most = jv_int_arg(j, jv_or(a->arg[1], jv_int(-1)), "maxsplit");
    if (by)
        return rsplit_at(j, self.s, by, most);
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

METHOD(splitlines)
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

static struct jv partition_at(struct jinja_state *j, const struct js *s, const struct js *by, size_t at,
                              bool whole_last)
{
    const struct jv parts = jv_listed(j, JV_TUPLE, 3);
    for (size_t i = 0; i < 3; i++)
        parts.list->item[i] = jv_string(&js_empty);
    if (at == SIZE_MAX) {
        parts.list->item[whole_last ? 2 : 0] = jv_string(s);
        return parts;
    }
    parts.list->item[0] = jv_string(js_part(j, s, 0, at));
    parts.list->item[1] = jv_string(js_part(j, s, at, at + by->len));
    parts.list->item[2] = jv_string(js_part(j, s, at + by->len, s->len));
    return parts;
}

METHOD(partition)
{
    const struct js *by = string_arg(j, a->arg[0], "the separator");
    if (!by->len)
        jinja_fail(j, "partition() needs a separator that is not empty");
    return partition_at(j, self.s, by, js_find(j, self.s, by, 0, self.s->len), false);
}

METHOD(rpartition)
{
    const struct js *by = string_arg(j, a->arg[0], "the separator");
    if (!by->len)
        jinja_fail(j, "rpartition() needs a separator that is not empty");
    return partition_at(j, self.s, by, js_rfind(j, self.s, by, 0, self.s->len), true);
}

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

METHOD(startswith) { return has_end(j, self, a, false); }
METHOD(endswith) { return has_end(j, self, a, true); }

static int64_t find_in(struct jinja_state *j, struct jv self, const struct jv_args *a, bool last)
{
    size_t start, end;
    const struct js *what = string_arg(j, a->arg[0], "what to find");
    if (!range_of(j, self.s, a->arg[1], a->arg[2], &start, &end))
        return -1;
    const size_t at = (last ? js_rfind : js_find)(j, self.s, what, start, end);
    return at == SIZE_MAX ? -1 : (int64_t)js_count(j, js_part(j, self.s, 0, at));
}

METHOD(find) { return jv_int(find_in(j, self, a, false)); }
METHOD(rfind) { return jv_int(find_in(j, self, a, true)); }

static struct jv index_in(struct jinja_state *j, struct jv self, const struct jv_args *a, bool last)
{
    const int64_t at = find_in(j, self, a, last);
    if (at < 0)
        jinja_fail(j, "index(): the string is not found");
    return jv_int(at);
}

METHOD(index_of) { return index_in(j, self, a, false); }
METHOD(rindex_of) { return index_in(j, self, a, true); }

METHOD(count)
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

METHOD(replace)
{
    const struct js *new = string_arg(j, a->arg[1], "the replacement");
    if (jv_is_markup(self))
        new = jv_escape(j, a->arg[1]).s;
    return jv_string(js_replace(j, self.s, string_arg(j, a->arg[0], "what to replace"), new,
                                jv_int_arg(j, jv_or(a->arg[2], jv_int(-1)), "count")));
}

METHOD(removeprefix)
{
    const struct js *what = string_arg(j, a->arg[0], "the prefix");
    const bool has = is_at(j, self.s, what, 0, self.s->len, false);
    return has ? jv_string(js_part(j, self.s, what->len, self.s->len)) : self;
}

METHOD(removesuffix)
{
    const struct js *what = string_arg(j, a->arg[0], "the suffix");
    const bool has = is_at(j, self.s, what, 0, self.s->len, true);
    return has ? jv_string(js_part(j, self.s, 0, self.s->len - what->len)) : self;
}

METHOD(join)
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

const struct js *js_pad(struct jinja_state *j, const struct js *s, int64_t width, const struct js *fill,
                        unsigned sides)
{
    struct js_builder b = {.j = j};
    const int64_t n = (int64_t)js_count(j, s), more = width > n ? width - n : 0;
    /* Python puts the odd one on the left if the width is odd. */
    const int64_t left = sides == (JS_LEFT | JS_RIGHT) ? more / 2 + (more & width & 1)
                         : sides == JS_LEFT            ? more
                                                       : 0;
    if (js_count(j, fill) != 1)
        jinja_fail(j, "the padding is not one character");
    jinja_work(j, (size_t)more);
    for (int64_t i = 0; i < left; i++)
        js_add_str(&b, fill);
    js_add_str(&b, s);
    for (int64_t i = left; i < more; i++)
        js_add_str(&b, fill);
    return js_done(&b);
}

static struct jv pad(struct jinja_state *j, struct jv self, const struct jv_args *a, unsigned sides)
{
    const struct js *fill =
        a->arg[1].kind == JV_ABSENT ? js_literal(j, " ") : string_arg(j, a->arg[1], "the padding");
    return jv_string(js_pad(j, self.s, jv_int_arg(j, a->arg[0], "the width"), fill, sides));
}

METHOD(ljust) { return pad(j, self, a, JS_RIGHT); }
METHOD(rjust) { return pad(j, self, a, JS_LEFT); }
METHOD(center) { return pad(j, self, a, JS_LEFT | JS_RIGHT); }

METHOD(zfill)
{
    const size_t sign = self.s->len && strchr("+-", self.s->text[0]) ? 1 : 0;
    struct js_builder b = {.j = j};
    const int64_t width = jv_int_arg(j, a->arg[0], "the width");
    js_add_part(&b, self.s, 0, sign);
    js_add_str(&b, js_pad(j, js_part(j, self.s, sign, self.s->len),
                          width < 1 ? 0 : width - (int64_t)sign, js_literal(j, "0"), JS_LEFT));
    return jv_string(js_done(&b));
}

/* str.format() with {}, {0} and {name}. */
METHOD(format)
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

#define CASE(function, to)                                                                             \
    METHOD(function)                                                                                   \
    {                                                                                                  \
        (void)a;                                                                                       \
        return jv_string(js_case(j, self.s, to));                                                      \
    }
#define IS(function, class)                                                                            \
    METHOD(function)                                                                                   \
    {                                                                                                  \
        (void)a;                                                                                       \
        return jv_bool(js_is_all(j, self.s, class));                                                   \
    }
CASE(to_upper, JS_UPPER)
CASE(to_lower, JS_LOWER)
CASE(to_title, JS_TITLE)
CASE(to_capital, JS_CAPITAL)
CASE(to_swapped, JS_SWAP)
IS(all_alpha, JS_ALPHA)
IS(all_digit, JS_DIGIT)
IS(all_alnum, JS_ALNUM)
IS(all_space, JS_SPACE)
IS(all_lower, JS_IS_LOWER)
IS(all_upper, JS_IS_UPPER)

const struct jinja_builtin jinja_str_methods[JINJA_STR_METHODS] = {
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
    {"ljust", ljust, "width fillchar", 1 + KEEPS_MARKUP},
    {"rjust", rjust, "width fillchar", 1 + KEEPS_MARKUP},
    {"center", center, "width fillchar", 1 + KEEPS_MARKUP},
    {"zfill", zfill, "width", 1 + KEEPS_MARKUP},
    {"format", format, NULL, 0},
    {"upper", to_upper, "", KEEPS_MARKUP},
    {"lower", to_lower, "", KEEPS_MARKUP},
    {"title", to_title, "", KEEPS_MARKUP},
    {"capitalize", to_capital, "", KEEPS_MARKUP},
    {"swapcase", to_swapped, "", KEEPS_MARKUP},
    {"isalpha", all_alpha, "", 0},
    {"isdigit", all_digit, "", 0},
    {"isalnum", all_alnum, "", 0},
    {"isspace", all_space, "", 0},
    {"islower", all_lower, "", 0},
    {"isupper", all_upper, "", 0},
};
