/* Text that is escaped for HTML. */
#include "text/jinja_values/jinja_markup.h"

#include <string.h>

#include "text/jinja_values/jinja_repr.h"

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
