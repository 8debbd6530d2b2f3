/* The text of template values: str() and repr(), escaping, the % operator, JSON. */
#include "text/jinja/jinja_text.h"

#include <utf8proc.h>

#include "text/jinja/jinja_value.h"
#include "text/utf8.h"

/* ---- the text of template values ---- */

static void jv_add_repr(struct js_builder *b, struct jv value);

/* Digits and decimal exponent of the shortest text that reads back as x. */
static int shortest(struct jinja_state *j, double x, char digits[24])
{
    char text[64];
    for (int precision = 1; precision <= 17; precision++) {
        jinja_work(j, 10);
        snprintf(text, sizeof text, "%.*e", precision - 1, x);
        if (strtod(text, NULL) == x)
            break;
    }
    size_t n = 0;
    for (const char *at = text; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digits[n++] = *at;
    digits[n] = 0;
    return (int)strtoll(strchr(text, 'e') + 1, NULL, 10);
}

/* The shortest text that reads back as the same number, as Python writes it. */
static void jinja_float_text(struct jinja_state *j, double x, char text[64])
{
    char digits[24];
    const char *sign = signbit(x) ? "-" : "";
    if (isnan(x) || isinf(x)) {
        snprintf(text, 64, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    const int exponent = shortest(j, fabs(x), digits), n = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, 64, "%s%c%s%s%s%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1, "e",
                 exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(text, 64, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (n > exponent + 1)
        snprintf(text, 64, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    else
        snprintf(text, 64, "%s%s%.*s.0", sign, digits, exponent + 1 - n, "0000000000000000");
}

static bool is_printable(uint32_t code)
{
    if (code == ' ')
        return true;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void repr_character(struct js_builder *b, uint32_t code, char quote, bool content)
{
    static const char plain[] = "\n\r\t\\", names[] = "nrt\\";
    char text[16];
    const char *known = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
    if (known)
        snprintf(text, sizeof text, "\\%c", names[known - plain]);
    else if (code == (unsigned char)quote)
        snprintf(text, sizeof text, "\\%c", quote);
    else if (is_printable(code)) {
        js_add_char(b, code, content);
        return;
    } else {
        jinja_work(b->j, 2);
        snprintf(text, sizeof text,
                 code < 0x100     ? "\\x%02x"
                 : code < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 code);
    }
    js_add(b, text, strlen(text), content);
}

static void repr_string(struct js_builder *b, const struct js *s)
{
    const char quote = memchr(s->text, '\'', s->len) && !memchr(s->text, '"', s->len) ? '"' : '\'';
    js_add(b, &quote, 1, false);
    jinja_touch(b->j, 8 * s->len);
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        const unsigned len = utf8_decode(s->text + at, &code);
        repr_character(b, code, quote, js_is_content(s, at));
        at += len;
    }
    js_add(b, &quote, 1, false);
}

static void add_text(struct js_builder *b, const char *text) { js_add(b, text, strlen(text), false); }

static void repr_items(struct js_builder *b, const struct jv_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            add_text(b, ", ");
        jv_add_repr(b, list->item[i]);
    }
}

static void repr_dict(struct js_builder *b, const struct jv_dict *dict)
{
    add_text(b, "{");
    for (size_t i = 0; i < dict->n; i++) {
        if (i)
            add_text(b, ", ");
        jv_add_repr(b, dict->entry[i].key);
        add_text(b, ": ");
        jv_add_repr(b, dict->entry[i].value);
    }
    add_text(b, "}");
}

static void add_number(struct js_builder *b, struct jv value)
{
    char text[64];
    jinja_work(b->j, 4);
    if (value.kind == JV_INT)
        snprintf(text, sizeof text, "%lld", (long long)value.i);
    else
        jinja_float_text(b->j, value.f, text);
    add_text(b, text);
}

static void jv_add_repr(struct js_builder *b, struct jv value)
{
    jinja_work(b->j, 1);
    jinja_enter(b->j);
    switch (value.kind) {
    case JV_UNDEFINED: add_text(b, "Undefined"); break;
    case JV_NONE: add_text(b, "None"); break;
    case JV_BOOL: add_text(b, value.b ? "True" : "False"); break;
    case JV_INT:
    case JV_FLOAT: add_number(b, value); break;
    case JV_STRING:
        add_text(b, jv_is_markup(value) ? "Markup(" : "");
        repr_string(b, value.s);
        add_text(b, jv_is_markup(value) ? ")" : "");
        break;
    case JV_LIST:
        add_text(b, "[");
        repr_items(b, value.list);
        add_text(b, "]");
        break;
    case JV_TUPLE:
        add_text(b, "(");
        repr_items(b, value.list);
        add_text(b, value.list->n == 1 ? ",)" : ")");
        break;
    case JV_DICT: repr_dict(b, value.dict); break;
    default: jinja_fail(b->j, "a value of type %s cannot be written", jv_type(value));
    }
    jinja_leave(b->j);
}

void jv_add_str(struct js_builder *b, struct jv value)
{
    if (value.kind == JV_STRING)
        js_add_str(b, value.s);
    else if (value.kind != JV_UNDEFINED)
        jv_add_repr(b, value);
}

const struct js *jv_str(struct jinja_state *j, struct jv value)
{
    struct js_builder b = {.j = j};
    if (value.kind == JV_STRING)
        return value.s;
    jv_add_str(&b, value);
    return js_done(&b);
}

/* ---- text that is escaped for HTML ---- */

struct jv jv_as_markup(struct jinja_state *j, struct jv value)
{
    if (value.kind == JV_STRING)
        value.owner = JV_STRING;
    if (value.kind != JV_LIST && value.kind != JV_TUPLE)
        return value;
    const struct jv out = jv_listed(j, value.kind, value.list->n);
    for (size_t i = 0; i < value.list->n; i++) {
        out.list->item[i] = value.list->item[i];
        out.list->item[i].owner = JV_STRING;
    }
    return out;
}

struct jv jv_escape(struct jinja_state *j, struct jv value)
{
    static const struct {
        char from;
        const char *to;
    } table[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    if (jv_is_markup(value))
        return value;
    const struct js *s = jv_str(j, value);
    struct js_builder b = {.j = j};
    for (size_t at = 0; at < s->len; at++) {
        size_t i = 0;
        while (i < ARRAY_LEN(table) && table[i].from != s->text[at])
            i++;
        if (i < ARRAY_LEN(table))
            js_add(&b, table[i].to, strlen(table[i].to), js_is_content(s, at));
        else
            js_add_part(&b, s, at, at + 1);
    }
    return jv_as_markup(j, jv_string(js_done(&b)));
}

/* ---- formatting of strings with % ---- */

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

/* ---- JSON and template values ---- */

struct jv jv_from_json(struct jinja_state *j, const json_t *json, bool content)
{
    struct jv value = jv_none();
    const char *key;
    json_t *item;
    size_t i;
    jinja_work(j, 1);
    jinja_enter(j);
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_NULL: break;
    case JSON_TRUE:
    case JSON_FALSE: value = jv_bool(json_is_true(json)); break;
    case JSON_INTEGER: value = jv_int(json_integer_value(json)); break;
    case JSON_REAL: value = jv_float(json_real_value(json)); break;
    case JSON_STRING:
        value = jv_string(js_new(j, json_string_value(json), json_string_length(json), content));
        break;
    case JSON_ARRAY:
        value = jv_listed(j, JV_LIST, json_array_size(json));
        json_array_foreach(json, i, item) { value.list->item[i] = jv_from_json(j, item, content); }
        break;
    case JSON_OBJECT:
        value = jv_dict_new(j);
        json_object_foreach((json_t *)(uintptr_t)json, key, item)
        {
            const struct jv name = jv_string(js_new(j, key, strlen(key), content));
            jv_dict_set(j, value.dict, name, jv_from_json(j, item, content));
        }
        break;
    }
    jinja_leave(j);
    return value;
}

/* ---- writing ---- */

struct json_writer {
    struct js_builder b;
    const struct jinja_json_style *style;
    size_t level;
};

static void write_value(struct json_writer *w, struct jv value);

static void write_escape(struct js_builder *b, uint32_t code, bool content)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char text[16];
    jinja_work(b->j, 2);
    const char *known = code && code < 0x80 ? strchr(from, (int)code) : NULL;
    if (known)
        snprintf(text, sizeof text, "\\%c", to[known - from]);
    else if (code < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", code);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                 0xDC00 + ((code - 0x10000) & 0x3FF));
    js_add(b, text, strlen(text), content);
}

static void write_string(struct json_writer *w, const struct js *s)
{
    size_t done = 0;
    js_add(&w->b, "\"", 1, false);
    jinja_touch(w->b.j, 2 * s->len);
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        const size_t after = at + utf8_decode(s->text + at, &code);
        if (code < 0x20 || code == '"' || code == '\\' || (w->style->ascii && code >= 0x7F)) {
            js_add_part(&w->b, s, done, at);
            if (code == 0x7F)
                js_add_part(&w->b, s, at, after);
            else
                write_escape(&w->b, code, js_is_content(s, at));
            done = after;
        }
        at = after;
    }
    js_add_part(&w->b, s, done, s->len);
    js_add(&w->b, "\"", 1, false);
}

static void write_text(struct json_writer *w, const char *text)
{
    js_add(&w->b, text, strlen(text), false);
}

static void new_line(struct json_writer *w)
{
    if (!w->style->indent)
        return;
    write_text(w, "\n");
    for (size_t i = 0; i < w->level; i++)
        js_add_str(&w->b, w->style->indent);
}

static void write_list(struct json_writer *w, const struct jv_list *list)
{
    write_text(w, "[");
    w->level++;
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            js_add_str(&w->b, w->style->item);
        new_line(w);
        write_value(w, list->item[i]);
    }
    w->level--;
    if (list->n)
        new_line(w);
    write_text(w, "]");
}

static void write_float(struct json_writer *w, double x)
{
    char text[64];
    jinja_float_text(w->b.j, x, text);
    write_text(w, isnan(x) ? "NaN" : isinf(x) ? (x < 0 ? "-Infinity" : "Infinity") : text);
}

static void write_scalar(struct json_writer *w, struct jv value)
{
    if (value.kind == JV_NONE)
        write_text(w, "null");
    else if (value.kind == JV_BOOL)
        write_text(w, value.b ? "true" : "false");
    else if (value.kind == JV_FLOAT)
        write_float(w, value.f);
    else
        jv_add_str(&w->b, value);
}

/* A key: strings as they are, others as strings of their JSON. */
static void write_key(struct json_writer *w, struct jv key)
{
    if (key.kind == JV_STRING) {
        write_string(w, key.s);
        return;
    }
    if (key.kind == JV_TUPLE)
        jinja_fail(w->b.j, "tojson: a tuple cannot be a key");
    write_text(w, "\"");
    write_scalar(w, key);
    write_text(w, "\"");
}

static void write_dict(struct json_writer *w, const struct jv_dict *dict)
{
    struct jinja_state *j = w->b.j;
    struct jv *key = jinja_alloc(j, dict->n, sizeof *key);
    for (size_t i = 0; i < dict->n; i++)
        key[i] = dict->entry[i].key;
    if (w->style->sort_keys)
        jv_sort(j, key, NULL, dict->n, false);
    write_text(w, "{");
    w->level++;
    for (size_t i = 0; i < dict->n; i++) {
        if (i)
            js_add_str(&w->b, w->style->item);
        new_line(w);
        write_key(w, key[i]);
        js_add_str(&w->b, w->style->key);
        write_value(w, *jv_dict_get(j, dict, key[i]));
    }
    w->level--;
    if (dict->n)
        new_line(w);
    write_text(w, "}");
}

static void write_value(struct json_writer *w, struct jv value)
{
    jinja_work(w->b.j, 1);
    jinja_enter(w->b.j);
    switch (value.kind) {
    case JV_NONE:
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT: write_scalar(w, value); break;
    case JV_STRING: write_string(w, value.s); break;
    case JV_LIST:
    case JV_TUPLE: write_list(w, value.list); break;
    case JV_DICT: write_dict(w, value.dict); break;
    case JV_UNDEFINED: jv_fail_undefined(w->b.j, value);
    default: jinja_fail(w->b.j, "tojson: a value of type %s has no JSON", jv_type(value));
    }
    jinja_leave(w->b.j);
}

const struct js *jv_to_json(struct jinja_state *j, struct jv value,
                            const struct jinja_json_style *style)
{
    struct json_writer w = {.b = {.j = j}, .style = style};
    write_value(&w, value);
    return js_done(&w.b);
}

/* ---- arithmetic of template values ---- */

static const char *const signs[JV_OPS] = {"+", "-", "*", "/", "//", "%", "**"};

static _Noreturn void refuse(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b)
{
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        jv_fail_undefined(j, a.kind == JV_UNDEFINED ? a : b);
    jinja_fail(j, "the operator %s does not take values of types %s and %s", signs[op], jv_type(a),
               jv_type(b));
}

static _Noreturn void too_large(struct jinja_state *j) { jinja_fail(j, "an integer exceeds 64 bits"); }

static struct jv power(struct jinja_state *j, int64_t a, int64_t b)
{
    int64_t x = 1;
    if (b < 0 && a == 0)
        jinja_fail(j, "division by zero");
    if (b < 0)
        return jv_float(pow((double)a, (double)b));
    if (a == 0 || a == 1)
        return jv_int(b == 0 ? 1 : a);
    if (a == -1)
        return jv_int(b % 2 ? -1 : 1);
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(x, a, &x))
            too_large(j);
    return jv_int(x);
}

static struct jv of_integers(struct jinja_state *j, enum jv_op op, int64_t a, int64_t b)
{
    int64_t x = 0;
    bool over = false;
    if (b == 0 && (op == JV_DIV || op == JV_FLOORDIV || op == JV_MOD))
        jinja_fail(j, "division by zero");
    switch (op) {
    case JV_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case JV_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case JV_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case JV_DIV: return jv_float((double)a / (double)b);
    case JV_FLOORDIV:
        if (a == INT64_MIN && b == -1)
            too_large(j);
        x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case JV_MOD:
        x = b == -1 ? 0 : a % b;
        x += x != 0 && (x < 0) != (b < 0) ? b : 0;
        break;
    case JV_POW: return power(j, a, b);
    case JV_OPS: break;
    }
    if (over)
        too_large(j);
    return jv_int(x);
}

/* Python's remainder: it has the sign of b. */
static double modulo(double a, double b)
{
    double x = fmod(a, b);
    if (x != 0)
        return (x < 0) != (b < 0) ? x + b : x;
    return copysign(0, b);
}

static struct jv of_floats(struct jinja_state *j, enum jv_op op, double a, double b)
{
    if (b == 0 && (op == JV_DIV || op == JV_FLOORDIV || op == JV_MOD))
        jinja_fail(j, "division by zero");
    switch (op) {
    case JV_ADD: return jv_float(a + b);
    case JV_SUB: return jv_float(a - b);
    case JV_MUL: return jv_float(a * b);
    case JV_DIV: return jv_float(a / b);
    case JV_FLOORDIV: return jv_float(floor((a - modulo(a, b)) / b + 0.5));
    case JV_MOD: return jv_float(modulo(a, b));
    case JV_POW:
        if ((a < 0 && b != floor(b)) || (a == 0 && b < 0))
            jinja_fail(j, "a power that is not a real number");
        return jv_float(pow(a, b));
    case JV_OPS: break;
    }
    return jv_none();
}

static struct jv join(struct jinja_state *j, struct jv a, struct jv b)
{
    struct js_builder text = {.j = j};
    const bool markup = jv_is_markup(a) || jv_is_markup(b);
    if (markup) {
        a = jv_escape(j, a);
        b = jv_escape(j, b);
    }
    if (a.kind == JV_STRING) {
        js_add_str(&text, a.s);
        js_add_str(&text, b.s);
        const struct jv sum = jv_string(js_done(&text));
        return markup ? jv_as_markup(j, sum) : sum;
    }
    const struct jv list = jv_listed(j, a.kind, a.list->n + b.list->n);
    for (size_t i = 0; i < list.list->n; i++)
        list.list->item[i] = i < a.list->n ? a.list->item[i] : b.list->item[i - a.list->n];
    return list;
}

static struct jv repeat(struct jinja_state *j, struct jv value, int64_t times)
{
    const size_t n = times < 0 ? 0 : (size_t)times;
    struct js_builder text = {.j = j};
    size_t total;
    if (value.kind == JV_STRING) {
        for (size_t i = 0; i < n && value.s->len; i++) {
            js_add_str(&text, value.s);
            jinja_work(j, 1);
        }
        value.s = js_done(&text);
        return value;
    }
    if (__builtin_mul_overflow(value.list->n, n, &total))
        total = SIZE_MAX;
    const struct jv list = jv_listed(j, value.kind, total);
    for (size_t i = 0; i < total; i++)
        list.list->item[i] = value.list->item[i % value.list->n];
    return list;
}

struct jv jv_arith(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b)
{
    int64_t i, k;
    double x, y;
    jinja_touch(j, JINJA_STEP / 2);
    if (jv_integer(a, &i) && jv_integer(b, &k))
        return of_integers(j, op, i, k);
    if (jv_number(a, &x) && jv_number(b, &y))
        return of_floats(j, op, x, y);
    if (op == JV_ADD && a.kind == b.kind && (a.kind == JV_STRING || jv_is_listed(a)))
        return join(j, a, b);
    if (op == JV_MUL && (a.kind == JV_STRING || jv_is_listed(a)) && jv_integer(b, &k))
        return repeat(j, a, k);
    if (op == JV_MUL && (b.kind == JV_STRING || jv_is_listed(b)) && jv_integer(a, &i))
        return repeat(j, b, i);
    if (op == JV_MOD && jv_is_markup(a))
        jinja_fail(j, "text that is safe or escaped cannot be a format");
    if (op == JV_MOD && a.kind == JV_STRING)
        return jv_string(jinja_format(j, a.s, b));
    refuse(j, op, a, b);
}

struct jv jv_negate(struct jinja_state *j, struct jv value, bool positive)
{
    int64_t i;
    if (value.kind == JV_FLOAT)
        return jv_float(positive ? value.f : -value.f);
    if (value.kind == JV_UNDEFINED)
        jv_fail_undefined(j, value);
    if (!jv_integer(value, &i))
        jinja_fail(j, "a value of type %s has no sign", jv_type(value));
    if (!positive && i == INT64_MIN)
        too_large(j);
    return jv_int(positive ? i : -i);
}
