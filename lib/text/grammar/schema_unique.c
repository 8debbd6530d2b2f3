/* Lists of different items: an automaton whose states are the sets of values that a list has so far. */
#include "text/grammar/schema_unique.h"

struct unique_job {
    struct schema_job *job;
    expr_id value[SCHEMA_UNIQUE_VALUES];
    const json_t *json[SCHEMA_UNIQUE_VALUES];
    size_t n;
    uint32_t min, max;
    expr_id after[1 << SCHEMA_UNIQUE_VALUES]; /* what may follow a set; EXPR_EMPTY: not known yet */
};

static void add_value(struct unique_job *u, const json_t *value)
{
    for (size_t i = 0; i < u->n; i++)
        if (schema_values_equal(value, u->json[i]))
            return;
    if (u->n < SCHEMA_UNIQUE_VALUES) {
        u->json[u->n] = value;
        u->value[u->n++] = json_constant(&u->job->json, value);
    } else {
        schema_fail(u->job, "\"uniqueItems\" is supported for up to %d values", SCHEMA_UNIQUE_VALUES);
    }
}

/* Adds the values that a schema allows; false: it does not list them. */
static bool add_values(struct unique_job *u, const json_t *schema)
{
    static const struct {
        unsigned type;
        const char *text[3];
    } types[] = {{SCHEMA_BOOLEAN, {"true", "false", NULL}}, {SCHEMA_NULL, {"null", NULL, NULL}}};
    const json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    const unsigned all = schema_types(u->job, schema);
    if (json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf"))
        return false;
    for (size_t i = 0; i < (list ? json_array_size(list) : only != NULL); i++) {
        const json_t *value = list ? json_array_get(list, i) : only;
        const enum schema_fit fit = schema_fits(u->job, value, schema);
        if (fit == FIT_UNKNOWN)
            return false;
        if (fit == FIT_YES)
            add_value(u, value);
    }
    if (list || only)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (size_t k = 0; all & types[i].type && types[i].text[k]; k++)
            u->value[u->n++] = expr_text(u->job->json.grammar, types[i].text[k]);
    return !(all & ~(unsigned)(SCHEMA_BOOLEAN | SCHEMA_NULL));
}

/* What may follow the items of a set, as a rule. */
static expr_id after_set(struct unique_job *u, size_t set, uint32_t count)
{
    struct grammar *g = u->job->json.grammar;
    const expr_id comma = set ? EXPR_SEQ(g, expr_text(g, ","), json_space(&u->job->json)) : EXPR_EMPTY;
    expr_id list[SCHEMA_UNIQUE_VALUES + 1];
    size_t n = 0;
    if (u->after[set] != EXPR_EMPTY || g->failed)
        return u->after[set];
    if (count >= u->min && count)
        list[n++] = EXPR_EMPTY;
    for (size_t i = 0; i < u->n && count < u->max; i++)
        if (!(set >> i & 1)) {
            const expr_id more = after_set(u, set | (size_t)1 << i, count + 1);
            list[n] = EXPR_SEQ(g, comma, u->value[i], more);
            n += list[n] != EXPR_NONE;
        }
    u->after[set] = schema_rule(u->job, expr_alt(g, list, n), "items");
    return u->after[set];
}

expr_id schema_unique_items(struct schema_job *job, const json_t *schema, uint32_t min, uint32_t max)
{
    struct unique_job u = {.job = job, .min = min, .max = max};
    struct grammar *g = job->json.grammar;
    for (size_t i = 0; i < ARRAY_LEN(u.after); i++)
        u.after[i] = EXPR_EMPTY;
    schema = schema ? schema_expand(job, schema) : NULL;
    if (schema_failed(job))
        return EXPR_NONE;
    if (!json_is_object(schema) || !add_values(&u, schema))
        return schema_fail(job, "\"uniqueItems\" is supported for items that list their values (enum)");
    const expr_id space = json_space(&job->json), none = expr_text(g, "[]");
    const expr_id some =
        EXPR_SEQ(g, expr_text(g, "["), space, after_set(&u, 0, 0), space, expr_text(g, "]"));
    if (min > max || min > u.n)
        return EXPR_NONE;
    return max == 0 || u.n == 0 ? none : min == 0 ? EXPR_ALT(g, none, some) : some;
}
