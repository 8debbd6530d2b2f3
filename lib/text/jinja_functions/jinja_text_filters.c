/* Filters on text, and tojson. */
#include "text/jinja_functions/jinja_text_filters.h"

#include <string.h>

#include "text/jinja_values/jinja_case.h"
#include "text/jinja_values/jinja_format.h"
#include "text/jinja_values/jinja_json.h"
#include "text/jinja_values/jinja_markup.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"
#include "text/jinja_functions/jinja_str_methods.h"
#include "text/utf8.h"

#define FILTER(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

#define CASE(function, to)                                                                             \
    FILTER(function)                                                                                   \
    {                                                                                                  \
        (void)a;                                                                                       \
        return jv_string(js_case(j, jv_str(j, self), to));                                             \
    }
CASE(to_upper, JS_UPPER)
CASE(to_lower, JS_LOWER)
CASE(to_capital, JS_CAPITAL)
CASE(to_title, JS_WORDS)

static bool flag(struct jv arg) { return arg.kind != JV_ABSENT && jv_truth(arg); }

FILTER(trim)
{
    const struct jv chars = a->arg[0];
    const bool given = chars.kind != JV_ABSENT && chars.kind != JV_NONE;
    if (given && chars.kind != JV_STRING)
        jinja_fail(j, "trim: characters are expected, not a value of type %s", jv_type(chars));
    return jv_string(js_strip(j, jv_str(j, self), given ? chars.s : NULL, JS_LEFT | JS_RIGHT));
}

FILTER(string)
{
    (void)a;
    return jv_string(jv_str(j, self));
}

FILTER(replace)
{
    const bool limited = a->arg[2].kind != JV_ABSENT && a->arg[2].kind != JV_NONE;
    return jv_string(js_replace(j, jv_str(j, self), jv_str(j, a->arg[0]), jv_str(j, a->arg[1]),
                                limited ? jv_int_arg(j, a->arg[2], "count") : -1));
}

static const struct js *spaces(struct jinja_state *j, int64_t n)
{
    return js_pad(j, &js_empty, n, js_literal(j, " "), JS_LEFT);
}

/* Whether a character ends a line, for str.splitlines() of Python. */
static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

FILTER(indent)
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

FILTER(truncate)
{
    size_t items;
    if (self.kind != JV_STRING && jv_length(j, self, &items) && !items)
        return self;
    if (self.kind != JV_STRING)
        jinja_fail(j, "truncate: a string is expected, not a value of type %s", jv_type(self));
    const struct js *s = self.s,
                    *end = a->arg[2].kind == JV_ABSENT ? js_literal(j, "...") : jv_str(j, a->arg[2]);
    const int64_t length = jv_int_arg(j, jv_or(a->arg[0], jv_int(255)), "the length");
    const int64_t leeway =
        a->arg[3].kind == JV_NONE ? 5 : jv_int_arg(j, jv_or(a->arg[3], jv_int(5)), "the leeway");
    const int64_t n = (int64_t)js_count(j, s), tail = (int64_t)js_count(j, end);
    struct js_builder b = {.j = j};
    if (length < tail || leeway < 0)
        jinja_fail(j, "truncate: the length is below that of the end, or the leeway below 0");
    if (n <= length || n - length <= leeway)
        return jv_string(s);
    const struct js *head = js_part(j, s, 0, js_offset(j, s, (size_t)(length - tail)));
    jinja_touch(j, head->len / 4);
    const char *last = flag(a->arg[1]) ? NULL : memrchr(head->text, ' ', head->len);
    js_add_part(&b, head, 0, last ? (size_t)(last - head->text) : head->len);
    js_add_str(&b, jv_is_markup(self) ? jv_escape(j, jv_string(end)).s : end);
    return jv_string(js_done(&b));
}

FILTER(center)
{
    const int64_t width = jv_int_arg(j, jv_or(a->arg[0], jv_int(80)), "the width");
    return jv_string(js_pad(j, jv_str(j, self), width, js_literal(j, " "), JS_LEFT | JS_RIGHT));
}

FILTER(wordcount)
{
    const struct js *s = jv_str(j, self);
    int64_t n = 0;
    bool inside = false;
    (void)a;
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        jinja_touch(j, 12);
        at += utf8_decode(s->text + at, &code);
        n += utf8_is_word(code) && !inside;
        inside = utf8_is_word(code);
    }
    return jv_int(n);
}

FILTER(format)
{
    if (a->n_named)
        jinja_fail(j, "format: named values are not known");
    if (jv_is_markup(self))
        jinja_fail(j, "format: text that is safe or escaped cannot be a format");
    const struct jv values = jv_listed(j, JV_TUPLE, a->n);
    if (a->n)
        memcpy(values.list->item, a->arg, a->n * sizeof *a->arg);
    return jv_string(jinja_format(j, jv_str(j, self), values));
}

FILTER(escape)
{
    (void)a;
    return jv_escape(j, self);
}

FILTER(escape_again)
{
    (void)a;
    return jv_escape(j, jv_string(jv_str(j, self)));
}

FILTER(safe)
{
    (void)a;
    return jv_as_markup(j, jv_string(jv_str(j, self)));
}

FILTER(tojson)
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

const struct jinja_builtin jinja_text_filters[JINJA_TEXT_FILTERS] = {
    {"upper", to_upper, "", KEEPS_MARKUP},
    {"lower", to_lower, "", KEEPS_MARKUP},
    {"capitalize", to_capital, "", KEEPS_MARKUP},
    {"title", to_title, "", 0},
    {"trim", trim, "chars", KEEPS_MARKUP},
    {"string", string, "", KEEPS_MARKUP},
    {"safe", safe, "", 0},
    {"replace", replace, "old new count", 2},
    {"indent", indent, "width first blank", KEEPS_MARKUP},
    {"truncate", truncate, "length killwords end leeway", KEEPS_MARKUP},
    {"center", center, "width", KEEPS_MARKUP},
    {"wordcount", wordcount, "", 0},
    {"format", format, NULL, 0},
    {"escape", escape, "", 0},
    {"e", escape, "", 0},
    {"forceescape", escape_again, "", 0},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys", 0},
};
