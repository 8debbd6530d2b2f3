/* Objects of a JSON Schema: properties in the schema's order, then additional ones. */
#include "text/grammar/schema_object.h"

#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema_string.h"

struct property {
    const char *name;
    const json_t *schema; /* NULL: any value */
    bool required;
    expr_id member; /* name and value */
};

struct object_job {
    struct schema_job *job;
    struct property *property;
    size_t n;
    json_t *index;       /* indices of properties, by name */
    const json_t *names; /* "propertyNames", expanded; NULL: any */
    expr_id others;      /* an additional member, or EXPR_NONE */
    /* Of objects with minProperties or maxProperties: */
    uint32_t min, max; /* EXPR_MANY: no limit */
    uint32_t counts;   /* numbers of members that are told apart: this one is also for more */
    expr_id *rest;     /* [n + 1][counts + 1]: counted_from(); EXPR_EMPTY: not known yet */
    bool uncounted;    /* additional members would be needed that may repeat a name */
};

/* What the schema says about a member: its own schema, and those of patterns that its name matches; or the
 * schema of others. NULL: nothing. */
static const json_t *schema_of(struct object_job *o, const json_t *schema, const char *name)
{
    const json_t *of = json_object_get(json_object_get(schema, "properties"), name);
    const char *pattern;
    json_t *value;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, value)
    {
        if (schema_name_matches(o->job, pattern, name))
            of = of ? schema_both(o->job, of, value) : value;
    }
    return of ? of : json_object_get(schema, "additionalProperties");
}

static bool name_fits(struct object_job *o, const char *name)
{
    json_t *text = o->names ? json_string(name) : NULL;
    const enum schema_fit fit = text ? schema_fits(o->job, text, o->names) : FIT_YES;
    json_decref(text);
    if (fit == FIT_UNKNOWN)
        schema_fail(o->job, "\"propertyNames\" with such keywords is not supported");
    return fit == FIT_YES;
}

/* Adds a property unless it is there; false: no object can have it although it is required. */
static bool add_property(struct object_job *o, const json_t *schema, const char *name, bool required)
{
    const json_t *known = json_object_get(o->index, name);
    if (known) {
        struct property *p = &o->property[json_integer_value(known)];
        p->required = p->required || required;
        return true;
    }
    const json_t *own = schema_of(o, schema, name);
    const bool possible = !json_is_false(own) && name_fits(o, name);
    if (!possible && !required)
        return true;
    if (json_object_set_new(o->index, name, json_integer((json_int_t)o->n)) < 0)
        grammar_no_memory(o->job->json.grammar, "properties");
    o->property[o->n++] = (struct property){name, own, required, EXPR_NONE};
    return possible;
}

/* Names that "propertyNames" lists; NULL: it lists none. */
static const json_t *listed_names(const struct object_job *o)
{
    return json_object_get(o->names, "enum");
}

/* Whether there are members that "properties" does not list. */
static bool is_open(const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    return others ? !json_is_false(others)
                  : !json_object_get(schema, "properties") &&
                        !json_object_get(schema, "patternProperties");
}

/* Lists the properties, and required ones that the schema does not describe; false: no object can
 * have all that are required. */
static bool list_properties(struct object_job *o, const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required"), *listed = listed_names(o);
    bool possible = true;
    const char *name;
    json_t *own;
    json_object_foreach(json_object_get(schema, "properties"), name, own)
    {
        (void)add_property(o, schema, name, false);
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        possible = add_property(o, schema, name, true) && possible;
    }
    for (size_t i = 0; i < json_array_size(listed); i++) {
        name = json_string_value(json_array_get(listed, i));
        const json_t *of = name ? schema_of(o, schema, name) : NULL;
        if (name && (is_open(schema) || of != json_object_get(schema, "additionalProperties")))
            (void)add_property(o, schema, name, false);
    }
    return possible;
}

static expr_id member_of(struct object_job *o, expr_id name, const json_t *schema)
{
    struct grammar *g = o->job->json.grammar;
    const expr_id value = schema ? o->job->compile(o->job, schema) : json_any(&o->job->json);
    return EXPR_SEQ(g, name, expr_text(g, ":"), EXPR_OPTIONAL(g, expr_text(g, " ")), value);
}

/* Additional members whose names match a pattern, or, if it is NULL, none of them. */
static expr_id other_members(struct object_job *o, const json_t *schema, const char *pattern,
                             const char *const *names, size_t n)
{
    const json_t *patterns = json_object_get(schema, "patternProperties");
    const json_t *of =
        pattern ? json_object_get(patterns, pattern) : json_object_get(schema, "additionalProperties");
    if (json_is_false(of))
        return EXPR_NONE;
    const size_t mark = pattern ? schema_enter(o->job, "patternProperties", pattern)
                                : schema_enter(o->job, "additionalProperties", NULL);
    const struct schema_names wanted = {o->names, pattern, patterns, names, n};
    const expr_id name =
        o->names || patterns ? schema_name(o->job, &wanted) : json_other_name(&o->job->json, names, n);
    const expr_id id = name == EXPR_NONE ? name : member_of(o, name, of);
    schema_leave(o->job, mark);
    return id;
}

/* Compiles o->others: members other than the properties, and than those whose schema is false. */
static void compile_others(struct object_job *o, const json_t *schema)
{
    struct grammar *g = o->job->json.grammar;
    const json_t *properties = json_object_get(schema, "properties");
    const char **names = mem_alloc(o->n + json_object_size(properties) + 1, sizeof *names);
    struct expr_list list = {0};
    size_t n = 0;
    const char *name;
    json_t *own;
    o->others = EXPR_NONE;
    if (!names)
        grammar_no_memory(o->job->json.grammar, "properties");
    if (!names || listed_names(o) || json_is_false(o->names)) {
        free(names);
        return;
    }
    for (size_t i = 0; i < o->n; i++)
        names[n++] = o->property[i].name;
    json_object_foreach((json_t *)(uintptr_t)properties, name, own)
    {
        if (!json_object_get(o->index, name))
            names[n++] = name;
    }
    json_object_foreach(json_object_get(schema, "patternProperties"), name, own)
    {
        if (!g->failed)
            expr_list_add(g, &list, other_members(o, schema, name, names, n));
    }
    if (is_open(schema) && !g->failed)
        expr_list_add(g, &list, other_members(o, schema, NULL, names, n));
    o->others = schema_rule(o->job, expr_alt(g, list.id, list.n), "member");
    expr_list_release(&list);
    free(names);
}

static void compile_members(struct object_job *o, const json_t *schema)
{
    for (size_t i = 0; i < o->n && !schema_failed(o->job); i++) {
        const size_t mark = schema_enter(o->job, "properties", o->property[i].name);
        o->property[i].member =
            member_of(o, json_name(&o->job->json, o->property[i].name), o->property[i].schema);
        schema_leave(o->job, mark);
    }
    if (!schema_failed(o->job))
        compile_others(o, schema);
}

/* What may follow the members before property i, of which there is at least one. */
static expr_id rest_from(struct object_job *o, size_t i, expr_id after)
{
    struct grammar *g = o->job->json.grammar;
    const expr_id comma = EXPR_SEQ(g, expr_text(g, ","), json_space(&o->job->json));
    const struct property *p = &o->property[i];
    const expr_id next = EXPR_SEQ(g, comma, p->member);
    return EXPR_SEQ(g, p->required ? next : EXPR_OPTIONAL(g, next), after);
}

/* The members, of which the first one present is property i or a later one. Rules share what
 * follows. */
static expr_id all_members(struct object_job *o)
{
    struct grammar *g = o->job->json.grammar;
    const expr_id comma = EXPR_SEQ(g, expr_text(g, ","), json_space(&o->job->json));
    struct expr_list starts = {0};
    size_t leading = 0; /* optional properties before the first required one */
    while (leading < o->n && !o->property[leading].required)
        leading++;
    for (size_t i = 0; i < leading; i++)
        o->property[i].member = schema_rule(o->job, o->property[i].member, "member");
    if (leading && leading < o->n)
        o->property[leading].member = schema_rule(o->job, o->property[leading].member, "member");
    expr_id after = expr_repeat(g, EXPR_SEQ(g, comma, o->others), 0, EXPR_MANY);
    if (leading == o->n && o->others != EXPR_NONE)
        expr_list_add(g, &starts, EXPR_SEQ(g, o->others, after));
    for (size_t i = o->n; i-- > 0 && !g->failed;) {
        if (i <= leading) {
            if (leading > 0)
                after = schema_rule(o->job, after, "members");
            expr_list_add(g, &starts, EXPR_SEQ(g, o->property[i].member, after));
        }
        if (i > 0)
            after = rest_from(o, i, after);
    }
    const expr_id id = expr_alt(g, starts.id, starts.n);
    expr_list_release(&starts);
    return id;
}

/* Additional members behind `count` others. Their names may repeat, so that at most one of them counts. */
static expr_id counted_others(struct object_job *o, uint32_t count)
{
    struct grammar *g = o->job->json.grammar;
    const expr_id comma = EXPR_SEQ(g, expr_text(g, ","), json_space(&o->job->json));
    const uint32_t least = o->min > count ? o->min - count : 0;
    const uint32_t most = o->max == EXPR_MANY ? EXPR_MANY : o->max - count;
    if (o->others == EXPR_NONE || most == 0)
        return least || !count ? EXPR_NONE : EXPR_EMPTY;
    if (least > 1) {
        o->uncounted = true;
        return EXPR_NONE;
    }
    const expr_id more = expr_repeat(g, EXPR_SEQ(g, comma, o->others), count ? least : 0,
                                     most == EXPR_MANY || count ? most : most - 1);
    return count ? more : EXPR_SEQ(g, o->others, more);
}

/* The members from property i on, behind `count` others; at least one in all. */
static expr_id counted_from(struct object_job *o, size_t i, uint32_t count)
{
    struct grammar *g = o->job->json.grammar;
    expr_id *known = &o->rest[i * (o->counts + 1) + count], list[2];
    size_t n = 0;
    if (*known != EXPR_EMPTY || g->failed)
        return *known;
    if (i == o->n) {
        const expr_id others = counted_others(o, count);
        return *known = others == EXPR_EMPTY ? others : schema_rule(o->job, others, "members");
    }
    const expr_id comma =
        count ? EXPR_SEQ(g, expr_text(g, ","), json_space(&o->job->json)) : EXPR_EMPTY;
    if (o->max == EXPR_MANY || count < o->max)
        list[n++] = EXPR_SEQ(g, comma, o->property[i].member,
                             counted_from(o, i + 1, count < o->counts ? count + 1 : count));
    n -= n && list[n - 1] == EXPR_NONE;
    if (!o->property[i].required)
        list[n++] = counted_from(o, i + 1, count);
    n -= n && list[n - 1] == EXPR_NONE;
    return *known = schema_rule(o->job, expr_alt(g, list, n), "members");
}

/* The members of an object with minProperties to maxProperties of them. */
static expr_id counted_members(struct object_job *o)
{
    enum { MOST_COUNTS = 4096 };
    const uint32_t most = o->max == EXPR_MANY ? o->min : o->max;
    o->counts = (uint32_t)size_max(1, size_min(most, o->n + 1));
    const size_t cells = (o->n + 1) * (o->counts + 1);
    if (cells > MOST_COUNTS)
        return schema_fail(o->job, "the limits of %zu properties are too complex", o->n);
    o->rest = mem_alloc(cells, sizeof *o->rest);
    for (size_t i = 0; o->rest && i < cells; i++)
        o->rest[i] = EXPR_EMPTY;
    for (size_t i = 0; i < o->n; i++)
        o->property[i].member = schema_rule(o->job, o->property[i].member, "member");
    const expr_id id = !o->rest      ? grammar_no_memory(o->job->json.grammar, "properties")
                       : o->max == 0 ? EXPR_NONE
                                     : counted_from(o, 0, 0);
    free(o->rest);
    if (o->uncounted && id == EXPR_NONE)
        return schema_fail(o->job, "\"minProperties\" needs additional properties, whose names may "
                                   "repeat: at most one of them counts");
    return id;
}

/* "propertyNames" as strings with conditions, or as a list. */
static void read_names(struct object_job *o, const json_t *schema)
{
    const json_t *given = json_object_get(schema, "propertyNames"), *names;
    const size_t mark = schema_enter(o->job, "propertyNames", NULL);
    names = given ? schema_expand(o->job, given) : NULL;
    if (json_object_get(names, "anyOf") || json_object_get(names, "oneOf"))
        schema_fail(o->job, "alternatives of names are not supported: list them with enum");
    if (json_object_get(names, "const")) /* as a list */
        names = schema_merge(o->job, names, schema_listing(o->job, json_object_get(names, "const")));
    if (json_is_object(names) && !(schema_types(o->job, names) & SCHEMA_STRING))
        names = schema_never(o->job);
    schema_leave(o->job, mark);
    o->names = json_is_true(names) || (names && schema_is_any(names)) ? NULL : names;
}

static expr_id compile_object(struct object_job *o, const json_t *schema)
{
    struct schema_job *job = o->job;
    struct grammar *g = job->json.grammar;
    const bool counted = o->min > 0 || o->max != EXPR_MANY;
    bool optional = o->min == 0;
    if (!list_properties(o, schema) || schema_failed(job))
        return EXPR_NONE;
    compile_members(o, schema);
    for (size_t i = 0; i < o->n; i++)
        optional = optional && !o->property[i].required;
    const expr_id members = counted ? counted_members(o) : all_members(o);
    const expr_id some = json_brackets(&job->json, "{", members, "}");
    return optional ? EXPR_ALT(g, expr_text(g, "{}"), some) : some;
}

expr_id schema_object(struct schema_job *job, const json_t *schema)
{
    static const char *const keys[] = {"properties",        "required",      "additionalProperties",
                                       "patternProperties", "propertyNames", "minProperties",
                                       "maxProperties"};
    struct object_job o = {.job = job,
                           .min = schema_count(job, schema, "minProperties", 0),
                           .max = schema_count(job, schema, "maxProperties", EXPR_MANY)};
    bool any = true;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        any = any && !json_object_get(schema, keys[i]);
    if (any)
        return json_any_object(&job->json);
    read_names(&o, schema);
    const size_t most = json_object_size(json_object_get(schema, "properties")) +
                        json_array_size(json_object_get(schema, "required")) +
                        json_array_size(listed_names(&o));
    o.property = mem_zalloc(most + 1, sizeof *o.property);
    o.index = json_object();
    if (!o.property || !o.index)
        grammar_no_memory(job->json.grammar, "properties");
    const expr_id id = schema_failed(job) ? EXPR_NONE : compile_object(&o, schema);
    json_decref(o.index);
    free(o.property);
    return id;
}
