/* Functions that templates can call by name. */
#include "text/jinja_functions/jinja_globals.h"

#include <string.h>

#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"

enum { MOST_RANGE = 100000 }; /* as in the sandbox of jinja2 */

#define GLOBAL(name)                                                                                   \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)

GLOBAL(range)
{
    int64_t start = 0, stop, step = 1;
    (void)self;
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

GLOBAL(dict)
{
    (void)self;
    return make_dict(j, a, "dict");
}

GLOBAL(name_space)
{
    (void)self;
    struct jv out = make_dict(j, a, "namespace");
    for (size_t i = 0; i < out.dict->n; i++) {
        const struct jv key = out.dict->entry[i].key;
        if (key.kind == JV_STRING && key.s->len && key.s->text[0] == '_')
            jinja_fail(j, "names of a namespace cannot begin with an underscore");
    }
    out.kind = JV_NAMESPACE;
    return out;
}

GLOBAL(cycler)
{
    (void)self;
    if (!a->n || a->n_named)
        jinja_fail(j, "cycler() needs values");
    const struct jv out = jv_listed(j, JV_CYCLER, a->n);
    memcpy(out.list->item, a->arg, a->n * sizeof *a->arg);
    return out;
}

GLOBAL(joiner)
{
    (void)self;
    const struct jv out = jv_listed(j, JV_JOINER, 1);
    out.list->item[0] = jv_or(a->arg[0], jv_string(js_literal(j, ", ")));
    return out;
}

GLOBAL(raise_exception)
{
    const struct js *why = jv_str(j, a->arg[0]);
    (void)self;
    jinja_fail(j, "the template refuses the conversation: %.*s", (int)size_min(why->len, 300),
               why->text);
}

GLOBAL(strftime_now)
{
    char format[256], text[1024];
    (void)self;
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

static const struct jinja_builtin globals[] = {
    {"range", range, NULL, 0},
    {"dict", dict, NULL, 0},
    {"namespace", name_space, NULL, 0},
    {"cycler", cycler, NULL, 0},
    {"joiner", joiner, "sep", 0},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
};

struct jinja_table jinja_global_table(void)
{
    return (struct jinja_table){globals, ARRAY_LEN(globals)};
}

const struct jinja_builtin *jinja_global(const struct js *name)
{
    return jinja_builtin_find(jinja_global_table(), name);
}
