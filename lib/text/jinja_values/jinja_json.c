/* JSON and template values. */
#include "text/jinja_values/jinja_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"
#include "text/utf8.h"

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
