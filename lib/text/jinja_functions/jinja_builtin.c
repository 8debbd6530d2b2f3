/* Calling functions of the interpreter: binds arguments to parameters. */
#include "text/jinja_functions/jinja_builtin.h"

#include <string.h>

#include "text/jinja_values/jinja_markup.h"

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

static struct jv call(struct jinja_state *j, const struct jinja_builtin *builtin, struct jv self,
                      const struct jv_args *args)
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
        return call(j, builtin, self, args);
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
    return call(j, builtin, self, &(struct jv_args){bound, total, NULL, 0});
}
