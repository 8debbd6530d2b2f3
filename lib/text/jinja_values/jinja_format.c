/* Formatting of strings with %. */
#include "text/jinja_values/jinja_format.h"

#include <stdio.h>
#include <string.h>

#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"

enum { MOST_WIDTH = 1000 };

/* A conversion: %-08.3f */
struct format_spec {
    bool left, zero, sign, blank, other;
    size_t width;
    int precision; /* -1: not given */
    char type;
};

static size_t read_number(struct jinja_state *j, const struct js *format, size_t *at)
{
    size_t n = 0;
    for (; *at < format->len && format->text[*at] >= '0' && format->text[*at] <= '9'; ++*at) {
        n = 10 * n + (size_t)(format->text[*at] - '0');
        if (n > MOST_WIDTH)
            jinja_fail(j, "a format is wider than %d", MOST_WIDTH);
    }
    return n;
}

static struct format_spec read_conversion(struct jinja_state *j, const struct js *format, size_t *at)
{
    struct format_spec c = {.precision = -1};
    for (; *at < format->len && strchr("-0+ #", format->text[*at]); ++*at) {
        c.left |= format->text[*at] == '-';
        c.zero |= format->text[*at] == '0';
        c.sign |= format->text[*at] == '+';
        c.blank |= format->text[*at] == ' ';
        c.other |= format->text[*at] == '#' || !format->text[*at];
    }
    c.width = read_number(j, format, at);
    if (*at < format->len && format->text[*at] == '.') {
        ++*at;
        c.precision = (int)read_number(j, format, at);
    }
    if (*at == format->len || !strchr("srdixXofFeEgGc", format->text[*at]) || !format->text[*at] ||
        c.other)
        jinja_fail(j, "a format of \"%%\" is not known");
    c.type = format->text[(*at)++];
    return c;
}

/* The value's text without padding. */
static const struct js *convert(struct jinja_state *j, const struct format_spec *c, struct jv value)
{
    char spec[16], text[MOST_WIDTH + 400];
    jinja_work(j, 16 + (c->precision > 0 ? (size_t)c->precision / 4 : 0));
    double x;
    struct js_builder b = {.j = j};
    if (c->type == 's' || c->type == 'c') {
        const struct js *s = jv_str(j, value);
        return c->precision < 0 ? s : js_part(j, s, 0, js_offset(j, s, (size_t)c->precision));
    }
    if (c->type == 'r') {
        jv_add_repr(&b, value);
        return js_done(&b);
    }
    if (!jv_number(value, &x))
        jinja_fail(j, "%%%c needs a number, not a value of type %s", c->type, jv_type(value));
    if (strchr("dixXo", c->type)) {
        if (value.kind == JV_FLOAT && strchr("xXo", c->type))
            jinja_fail(j, "%%%c needs an integer, not a value of type float", c->type);
        if (value.kind == JV_FLOAT && !(x > -9e18 && x < 9e18))
            jinja_fail(j, "an integer exceeds 64 bits");
        const int64_t i = value.kind == JV_FLOAT ? (int64_t)x : jv_int_arg(j, value, "a number");
        if (i < 0 && strchr("xXo", c->type))
            jinja_fail(j, "%%%c of a negative number is not known", c->type);
        snprintf(spec, sizeof spec, "%%%s.*ll%c",
                 c->sign    ? "+"
                 : c->blank ? " "
                            : "",
                 c->type == 'i' ? 'd' : c->type);
        snprintf(text, sizeof text, spec, c->precision, (long long)i);
    } else {
        snprintf(spec, sizeof spec, "%%%s.*%c", c->sign ? "+" : c->blank ? " " : "", c->type);
        snprintf(text, sizeof text, spec, c->precision < 0 ? 6 : c->precision, x);
    }
    js_add(&b, text, strlen(text), false);
    return js_done(&b);
}

static void add_padded(struct js_builder *b, const struct format_spec *c, const struct js *s)
{
    const size_t n = js_count(b->j, s), padding = c->width > n ? c->width - n : 0;
    const bool zeros = c->zero && !c->left && !strchr("src", c->type);
    const size_t sign = zeros && s->len && strchr("+- ", s->text[0]) ? 1 : 0;
    js_add_part(b, s, 0, sign);
    for (size_t i = 0; i < padding && !c->left; i++)
        js_add(b, zeros ? "0" : " ", 1, false);
    js_add_part(b, s, sign, s->len);
    for (size_t i = 0; i < padding && c->left; i++)
        js_add(b, " ", 1, false);
}

const struct js *jinja_format(struct jinja_state *j, const struct js *format, struct jv values)
{
    const bool many = values.kind == JV_TUPLE;
    const size_t n = many ? values.list->n : 1;
    struct js_builder b = {.j = j};
    size_t used = 0;
    for (size_t at = 0; at < format->len;) {
        const char *sign = memchr(format->text + at, '%', format->len - at);
        const size_t end = sign ? (size_t)(sign - format->text) : format->len;
        js_add_part(&b, format, at, end);
        at = end + 1;
        if (!sign)
            break;
        if (at < format->len && format->text[at] == '%') {
            js_add_part(&b, format, at, at + 1);
            at++;
            continue;
        }
        const struct format_spec c = read_conversion(j, format, &at);
        if (used == n)
            jinja_fail(j, "too few values for a format");
        const struct jv value = many ? values.list->item[used] : values;
        used++;
        add_padded(&b, &c, convert(j, &c, value));
    }
    const bool ignored = values.kind == JV_DICT || values.kind == JV_LIST || values.kind == JV_RANGE ||
                         values.kind == JV_UNDEFINED;
    if (used < n && !ignored)
        jinja_fail(j, "too many values for a format");
    return js_done(&b);
}
