/* Compiles JSON Schemas to grammars. Schemas that $ref names are rules, compiled one after the other,
 * so that they may refer to each other. */
#include "text/grammar/json_schema.h"

#include <stdlib.h>
#include <string.h>

#include "text/grammar/expr_texts.h"
#include "text/grammar/schema_object.h"
#include "text/grammar/schema_string.h"
#include "text/grammar/schema_unique.h"

/* ---- values of each type ---- */

/* The bound, or the format's limit of integers if that is stricter. */
static struct number_bound stricter(struct schema_job *job, struct number_bound bound, json_int_t limit,
                                    bool upper)
{
    const double given = json_number_value(bound.value);
    if (bound.value && (upper ? given <= (double)limit : given >= (double)limit))
        return bound;
    return (struct number_bound){schema_integer(job, limit), false};
}

/* Narrows bounds to the formats of integers, such as int32, unless nothing would be left. */
static void apply_formats(struct schema_job *job, const json_t *schema, struct number_bound *min,
                          struct number_bound *max)
{
    struct string_rule rule;
    for (size_t i = 0; schema_string_term(schema, i, &rule); i++) {
        const struct integer_format *f = rule.format ? schema_integer_format(rule.format) : NULL;
        if (!f || (min->value && json_number_value(min->value) >= (double)f->max) ||
            (max->value && json_number_value(max->value) <= (double)f->min))
            continue;
        if (f->min > INT64_MIN)
            *min = stricter(job, *min, f->min, false);
        if (f->max < INT64_MAX)
            *max = stricter(job, *max, f->max, true);
    }
}

static expr_id compile_number(struct schema_job *job, const json_t *schema, bool integer)
{
    struct number_bound min = schema_bound(schema, false), max = schema_bound(schema, true);
    struct grammar *g = job->json.grammar;
    const json_t *factor = json_object_get(schema, "multipleOf");
    if (integer)
        apply_formats(job, schema, &min, &max);
    const bool failed = g->failed;
    const expr_id id = factor    ? json_number_multiples(&job->json, factor, integer, &min, &max)
                       : integer ? json_integer_range(&job->json, &min, &max)
                                 : json_number_range(&job->json, &min, &max);
    return g->failed && !failed ? schema_name_place(job, "") : id;
}

static expr_id schema_compile(struct schema_job *job, const json_t *schema);

/* A list item as a rule, since it is used more than once. */
static expr_id item_rule(struct schema_job *job, const json_t *schema)
{
    return schema_rule(job, schema_compile(job, schema), "item");
}

static expr_id compile_prefix(struct schema_job *job, const json_t *prefix, size_t n)
{
    struct grammar *g = job->json.grammar;
    struct expr_list list = {0};
    const expr_id comma = EXPR_SEQ(g, expr_text(g, ","), json_space(&job->json));
    for (size_t i = 0; i < n && !g->failed; i++) {
        const size_t mark = schema_enter_item(job, "prefixItems", i);
        if (i)
            expr_list_add(g, &list, comma);
        expr_list_add(g, &list, schema_compile(job, json_array_get(prefix, i)));
        schema_leave(job, mark);
    }
    const expr_id id = expr_seq(g, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id compile_array(struct schema_job *job, const json_t *schema)
{
    const json_t *items = json_object_get(schema, "items"),
                 *prefix = json_object_get(schema, "prefixItems");
    const uint32_t min = schema_count(job, schema, "minItems", 0);
    const uint32_t max = schema_count(job, schema, "maxItems", EXPR_MANY);
    const size_t n = size_min(json_array_size(prefix), max);
    struct grammar *g = job->json.grammar;
    if (json_is_true(json_object_get(schema, "uniqueItems")) && max > 1) {
        if (prefix)
            return schema_fail(job, "\"uniqueItems\" and \"prefixItems\" together are not supported");
        return schema_unique_items(job, items, min, max);
    }
    const size_t mark = schema_enter(job, "items", NULL);
    const expr_id item = (prefix && !items) || n == max ? EXPR_NONE
                         : items                        ? item_rule(job, items)
                                                        : json_any(&job->json);
    schema_leave(job, mark);
    if (min > max || g->failed)
        return EXPR_NONE;
    if (n == 0)
        return json_enclosed(&job->json, "[", item, min, max, "]");
    const expr_id space = json_space(&job->json);
    const uint32_t least = min > n ? min - (uint32_t)n : 0;
    const expr_id more = expr_repeat(g, EXPR_SEQ(g, expr_text(g, ","), space, item), least,
                                     max == EXPR_MANY ? EXPR_MANY : max - (uint32_t)n);
    return json_brackets(&job->json, "[", EXPR_SEQ(g, compile_prefix(job, prefix, n), more), "]");
}

static expr_id compile_types(struct schema_job *job, const json_t *schema)
{
    struct grammar *g = job->json.grammar;
    const unsigned types = schema_types(job, schema);
    expr_id list[8];
    size_t n = 0;
    if (types & SCHEMA_NULL)
        list[n++] = expr_text(g, "null");
    if (types & SCHEMA_BOOLEAN)
        list[n++] = EXPR_ALT(g, expr_text(g, "true"), expr_text(g, "false"));
    if (types & SCHEMA_OBJECT)
        list[n++] = schema_object(job, schema);
    if (types & SCHEMA_ARRAY)
        list[n++] = compile_array(job, schema);
    if (types & SCHEMA_STRING)
        list[n++] = schema_string(job, schema);
    if (types & SCHEMA_NUMBER) /* integers among them */
        list[n++] = compile_number(job, schema, false);
    else if (types & SCHEMA_INTEGER)
        list[n++] = compile_number(job, schema, true);
    return expr_alt(g, list, n);
}

/* ---- lists of values and of schemas ---- */

static expr_id compile_values(struct schema_job *job, const json_t *schema)
{
    struct grammar *g = job->json.grammar;
    const json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    struct expr_texts values = {0};
    for (size_t i = 0; i < (list ? json_array_size(list) : 1) && !g->failed; i++) {
        const json_t *value = list ? json_array_get(list, i) : only;
        const enum schema_fit fit = schema_fits(job, value, schema);
        if (fit == FIT_UNKNOWN)
            schema_fail(job, "\"%s\" beside keywords of the same type is not supported",
                        list ? "enum" : "const");
        if (fit != FIT_YES)
            continue;
        json_constant_text(&job->json, value, &values.bytes);
        expr_texts_end(g, &values);
    }
    return expr_texts(g, &values);
}

/* Alternatives, each together with the schema's other keywords. */
static expr_id compile_alternatives(struct schema_job *job, const json_t *schema, const char *key)
{
    struct grammar *g = job->json.grammar;
    const json_t *list = json_object_get(schema, key);
    const json_t *rest = schema_without(job, schema, key);
    const size_t n = json_array_size(list);
    const json_t **branch = mem_zalloc(n, sizeof *branch);
    struct expr_list all = {0};
    if (!branch)
        grammar_no_memory(job->json.grammar, "schemas");
    for (size_t i = 0; i < n && rest && !g->failed; i++) {
        const json_t *own = json_array_get(list, i);
        branch[i] = schema_is_any(rest) ? own : schema_merge(job, rest, own);
    }
    if (!g->failed && strcmp(key, "oneOf") == 0)
        schema_check_exclusive(job, branch, n);
    for (size_t i = 0; i < n && !g->failed; i++) {
        const size_t mark = schema_enter_item(job, key, i);
        expr_list_add(g, &all, schema_compile(job, branch[i]));
        schema_leave(job, mark);
    }
    const expr_id id = expr_alt(g, all.id, all.n);
    expr_list_release(&all);
    free(branch);
    return id;
}

/* ---- references ---- */

/* The rule of the schema that a $ref names. */
static expr_id compile_ref(struct schema_job *job, const char *pointer)
{
    struct grammar *g = job->json.grammar;
    const json_t *known = json_object_get(job->ref_index, pointer);
    if (known)
        return expr_rule(g, job->ref[json_integer_value(known)].rule);
    const json_t *schema = schema_resolve(job, pointer);
    if (!schema)
        return EXPR_NONE;
    if (mem_grow(&job->ref, &job->refs_cap, job->n_refs, sizeof *job->ref, &g->why) < 0) {
        g->failed = true;
        return EXPR_NONE;
    }
    struct schema_ref *ref = &job->ref[job->n_refs];
    *ref = (struct schema_ref){schema, strdup(pointer), grammar_add_rule(g, pointer, strlen(pointer))};
    if (!ref->pointer ||
        json_object_set_new(job->ref_index, pointer, json_integer((json_int_t)job->n_refs)) < 0)
        return grammar_no_memory(job->json.grammar, "a reference");
    job->n_refs++;
    return expr_rule(g, ref->rule);
}

static expr_id compile_object(struct schema_job *job, const json_t *schema)
{
    static const char *const lists[] = {"anyOf", "oneOf"};
    const json_t *ref = json_object_get(schema, "$ref");
    if (!schema_check(job, schema))
        return EXPR_NONE;
    if (ref && schema_is_any(schema_without(job, schema, "$ref")))
        return schema_failed(job) ? EXPR_NONE : compile_ref(job, json_string_value(ref));
    schema = schema_expand(job, schema);
    if (!schema || !json_is_object(schema))
        return schema ? schema_compile(job, schema) : EXPR_NONE;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (json_object_get(schema, lists[i]))
            return compile_alternatives(job, schema, lists[i]);
    if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
        return compile_values(job, schema);
    if (schema_is_any(schema))
        return json_any(&job->json);
    return compile_types(job, schema);
}

static expr_id schema_compile(struct schema_job *job, const json_t *schema)
{
    if (schema_failed(job))
        return EXPR_NONE;
    if (json_is_boolean(schema))
        return json_is_true(schema) ? json_any(&job->json) : EXPR_NONE;
    if (++job->depth > SCHEMA_DEPTH)
        return schema_fail(job, "schemas are nested too deeply");
    const expr_id id = compile_object(job, schema);
    job->depth--;
    if (id == EXPR_NONE && !schema_failed(job) && !job->nothing.len &&
        buf_addf(&job->nothing, &job->json.grammar->why, "#%s", buf_text(&job->path)) < 0)
        job->json.grammar->failed = true;
    return id;
}

static void compile_all(struct schema_job *job, const json_t *schema)
{
    struct grammar *g = job->json.grammar;
    g->root = grammar_add_rule(g, "root", 4);
    grammar_set_rule(g, g->root, schema_compile(job, schema));
    if (!g->failed && g->rule[g->root].body == EXPR_NONE)
        grammar_fail(g, "JSON Schema: the schema matches no text: at %.200s no value is allowed",
                     job->nothing.len ? buf_text(&job->nothing) : "#");
    for (size_t i = 0; i < job->n_refs && !g->failed; i++) {
        job->depth = 0;
        buf_clear(&job->path);
        if (buf_addf(&job->path, &g->why, "%s", job->ref[i].pointer + 1) < 0)
            g->failed = true;
        const expr_id body = schema_compile(job, job->ref[i].schema);
        grammar_set_rule(g, job->ref[i].rule, body);
    }
}

int json_schema_parse(struct grammar *grammar, const json_t *schema, struct err *err)
{
    struct schema_job job = {.json = {.grammar = grammar},
                             .root = schema,
                             .made = json_array(),
                             .ref_index = json_object(),
                             .compile = schema_compile};
    if (!json_is_object(schema) && !json_is_boolean(schema))
        schema_fail(&job, "a schema is an object, found %s", json_type_name(schema));
    else if (!job.made || !job.ref_index)
        grammar_no_memory(grammar, "a schema");
    else
        compile_all(&job, schema);
    json_decref(job.made);
    json_decref(job.ref_index);
    json_decref(job.values);
    string_set_release(&job.strings);
    buf_release(&job.nothing);
    for (size_t i = 0; i < job.n_refs; i++)
        free(job.ref[i].pointer);
    free(job.ref);
    buf_release(&job.path);
    if (!grammar->failed)
        return 0;
    *err = grammar->why;
    return -1;
}

int json_object_grammar(struct grammar *grammar, struct err *err)
{
    struct json_grammar json = {.grammar = grammar};
    grammar->root = grammar_add_rule(grammar, "root", 4);
    grammar_set_rule(grammar, grammar->root, json_any_object(&json));
    if (!grammar->failed)
        return 0;
    *err = grammar->why;
    return -1;
}
