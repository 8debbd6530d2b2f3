/* Lists of different items: an automaton whose states are the sets of values, or of beginnings of items, that a list has
 * so far. */
#include "text/grammar/schema_unique.h"

#include <stdlib.h>

#include "text/grammar/expr_begin.h"

struct unique_job {
    struct schema_job *job;
    expr_id value[SCHEMA_UNIQUE_VALUES]; /* items of which a list has one at most */
    size_t n;
    uint32_t min, max;
    expr_id after[1 << SCHEMA_UNIQUE_VALUES]; /* what may follow a set; EXPR_EMPTY: not known yet */
};

/* ---- values that are listed ---- */

/* The values that a schema lists, different ones; NULL: it does not list them. */
static json_t *listed_values(struct schema_job *job, const json_t *schema)
{
    const json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    if ((!list && !only) || json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf"))
        return NULL;
    json_t *values = json_array(), *set = json_object();
    for (size_t i = 0; i < (list ? json_array_size(list) : 1) && !schema_failed(job); i++) {
        const json_t *value = list ? json_array_get(list, i) : only;
        const enum schema_fit fit = schema_fits(job, value, schema);
        if (fit == FIT_UNKNOWN)
            schema_fail(job, "\"enum\" beside keywords of the same type is not supported");
        if (fit != FIT_YES || schema_set_has(job, set, value))
            continue;
        schema_set_add(job, set, value);
        json_array_append(values, (json_t *)(uintptr_t)value);
    }
    json_decref(set);
    return values;
}

/* Lists of values in their order: for each of them, and each number of items so far, what follows. */
static expr_id in_order(struct unique_job *u, const json_t *values)
{
    enum { MOST_COUNTS = 64 };
    struct schema_job *job = u->job;
    struct grammar *g = job->json.grammar;
    const size_t n = json_array_size(values);
    const uint32_t max = (uint32_t)size_min(u->max, n);
    const size_t counts = max < n || u->min > 1 ? (max < n ? max : u->min) : 1;
    const expr_id comma = EXPR_SEQ(g, expr_text(g, ","), json_space(&job->json));
    expr_id *after = mem_alloc(counts + 1, sizeof *after);
    if (counts > MOST_COUNTS || !after) {
        free(after);
        return schema_fail(
            job,
            "\"uniqueItems\": limits of up to %d items are supported for items with more "
            "than %d values",
            MOST_COUNTS, SCHEMA_UNIQUE_VALUES);
    }
    for (size_t c = 0; c <= counts; c++)
        after[c] = c && c >= u->min ? EXPR_EMPTY : EXPR_NONE;
    for (size_t i = n; i-- > 0 && !g->failed;) {
        const expr_id value =
            schema_rule(job, json_constant(&job->json, json_array_get(values, i)), "item");
        for (size_t c = 0; c <= counts; c++) {
            const size_t more = c < counts ? c + 1 : max < n ? SIZE_MAX : counts;
            const expr_id taken =
                more == SIZE_MAX ? EXPR_NONE : EXPR_SEQ(g, c ? comma : EXPR_EMPTY, value, after[more]);
            if (taken == EXPR_NONE)
                continue;
            after[c] = after[c] == EXPR_NONE ? taken : EXPR_ALT(g, taken, after[c]);
            after[c] = schema_rule(job, after[c], "items");
        }
    }
    const expr_id id = after[0];
    free(after);
    return id;
}

/* ---- items that begin differently ---- */

/* The ASCII characters and blocks of others that are beginnings of group i. */
static void add_group(struct grammar *g, struct char_class *set, uint32_t i)
{
    enum { BLOCK = 64, LAST_BLOCK = 0x10000 };
    for (uint32_t c = ' '; c < 0x80; c++) {
        const uint32_t lower = c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
        if (c != '"' && c != '\\' && (lower + 3) % SCHEMA_UNIQUE_VALUES == i) /* 'a' is the first */
            char_class_add(g, set, c, c);
    }
    for (uint32_t c = 0x80; c < LAST_BLOCK; c += BLOCK)
        if (c / BLOCK % SCHEMA_UNIQUE_VALUES == i)
            char_class_add(g, set, c, c + BLOCK - 1);
    if (i == 0)
        char_class_add(g, set, LAST_BLOCK, CODE_MAX);
    if (i == 1)
        char_class_add(g, set, '"', '"'); /* the empty string */
    char_class_sort(set);
}

/* The items of group i: strings by their first character, numbers by their first digit, others by their first
 * character. Equal values are in the same group. */
static expr_id items_of_group(struct grammar *g, expr_id item, uint32_t i)
{
    static const char others[] = "tfn[{";
    struct char_class start = {0}, digit = {0}, other = {0};
    add_group(g, &start, i);
    char_class_add(g, &digit, '0' + i, '0' + i);
    char_class_add(g, &other, '0' + i, '0' + i);
    if (i < sizeof others - 1)
        char_class_add(g, &other, (uint32_t)others[i], (uint32_t)others[i]);
    char_class_sort(&other);
    const expr_id text = expr_begin(g, expr_after(g, item, '"'), &start),
                  negative = expr_begin(g, expr_after(g, item, '-'), &digit),
                  rest = expr_begin(g, item, &other);
    expr_id list[3];
    size_t n = 0;
    if (text != EXPR_NONE)
        list[n++] = EXPR_SEQ(g, expr_text(g, "\""), text);
    if (negative != EXPR_NONE)
        list[n++] = EXPR_SEQ(g, expr_text(g, "-"), negative);
    if (rest != EXPR_NONE)
        list[n++] = rest;
    char_class_release(&start);
    char_class_release(&digit);
    char_class_release(&other);
    return expr_alt(g, list, n);
}

static void find_groups(struct unique_job *u, const json_t *schema)
{
    struct schema_job *job = u->job;
    struct grammar *g = job->json.grammar;
    /* numbers with a bound have no exponent: the first digits of equal ones are the same */
    const json_t *bound = schema_lowest(job), *items = schema_both(job, schema, bound);
    const expr_id item = items ? job->compile(job, items) : EXPR_NONE;
    for (uint32_t i = 0; i < SCHEMA_UNIQUE_VALUES && !g->failed; i++) {
        u->value[u->n] = schema_rule(job, items_of_group(g, item, i), "item");
        u->n += u->value[u->n] != EXPR_NONE;
    }
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

/* The items of lists that have one. */
static expr_id some_items(struct unique_job *u, const json_t *schema)
{
    struct schema_job *job = u->job;
    json_t *values = json_is_object(schema) ? listed_values(job, schema) : NULL;
    const size_t n = json_array_size(values);
    expr_id id = EXPR_NONE;
    if (values && n > SCHEMA_UNIQUE_VALUES) {
        id = u->min > n ? EXPR_NONE : in_order(u, values);
    } else {
        for (size_t i = 0; i < n; i++)
            u->value[u->n++] = json_constant(&job->json, json_array_get(values, i));
        if (!values)
            find_groups(u, schema);
        if (!values && u->min > u->n && !schema_failed(job))
            schema_fail(
                job, "\"uniqueItems\" is supported for up to %zu items like these, \"minItems\" is %u",
                u->n, (unsigned)u->min);
        id = schema_failed(job) ? EXPR_NONE : after_set(u, 0, 0);
    }
    json_decref(values);
    return id;
}

expr_id schema_unique_items(struct schema_job *job, const json_t *schema, uint32_t min, uint32_t max)
{
    struct unique_job u = {.job = job, .min = min, .max = max};
    struct grammar *g = job->json.grammar;
    for (size_t i = 0; i < ARRAY_LEN(u.after); i++)
        u.after[i] = EXPR_EMPTY;
    const json_t *items = schema ? schema_expand(job, schema) : json_true();
    if (schema_failed(job) || min > max)
        return EXPR_NONE;
    const expr_id none = expr_text(g, "[]"), items_id = max ? some_items(&u, items) : EXPR_NONE;
    const expr_id some = json_brackets(&job->json, "[", items_id, "]");
    return min > 0 ? some : some == EXPR_NONE ? none : EXPR_ALT(g, none, some);
}
