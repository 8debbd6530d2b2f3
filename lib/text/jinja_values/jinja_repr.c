/* The text of template values. */
#include "text/jinja_values/jinja_repr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "text/jinja_values/jinja_markup.h"
#include "text/utf8.h"

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

void jinja_float_text(struct jinja_state *j, double x, char text[64])
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

void jv_add_repr(struct js_builder *b, struct jv value)
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
