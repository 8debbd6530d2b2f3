/* Objects of a JSON Schema: properties in the schema's order, then additional ones. */
#include "text/grammar/schema_object.h"

#include <stdlib.h>
#include <string.h>

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
    expr_id others; /* an additional member, or EXPR_NONE */
    /* Of objects with minProperties or maxProperties: */
    uint32_t min, max; /* EXPR_MANY: no limit */
    uint32_t counts;   /* numbers of members that are told apart: this one is also for more */
    expr_id *rest;     /* [n + 1][counts + 1]: counted_from(); EXPR_EMPTY: not known yet */
    bool uncounted;    /* additional members would be needed that may repeat a name */
};

static bool add_property(struct object_job *o, const char *name, const json_t *schema, bool required)
{
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->property[i].name, name) == 0) {
            o->property[i].required = o->property[i].required || required;
            return true;
        }
    if (json_is_false(schema) && !required)
        return true;
    o->property[o->n++] = (struct property){name, schema, required, EXPR_NONE};
    return !json_is_false(schema);
}

/* Lists the properties, and required ones that the schema does not describe; false: no object can
 * have all that are required. */
static bool list_properties(struct object_job *o, const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required");
    bool possible = true;
    const char *name;
    json_t *own;
    json_object_foreach(json_object_get(schema, "properties"), name, own)
    {
        possible = add_property(o, name, own, false) && possible;
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        name = json_string_value(json_array_get(required, i));
        possible = add_property(o, name, schema_member(schema, name), true) && possible;
    }
    return possible;
}

static expr_id member_of(struct object_job *o, expr_id name, const json_t *schema)
{
    struct grammar *g = o->job->json.grammar;
    const expr_id value = schema ? o->job->compile(o->job, schema) : json_any(&o->job->json);
    return EXPR_SEQ(g, name, expr_text(g, ":"), EXPR_OPTIONAL(g, expr_text(g, " ")), value);
}

static void compile_members(struct object_job *o, const json_t *schema)
{
    const json_t *others = json_object_get(schema, "additionalProperties");
    const bool open = others ? !json_is_false(others) : !json_object_get(schema, "properties");
    const char **names = mem_alloc(o->n + 1, sizeof *names);
    size_t n = 0, mark;
    const char *name;
    json_t *own;
    for (size_t i = 0; i < o->n && !schema_failed(o->job); i++) {
        mark = schema_enter(o->job, "properties", o->property[i].name);
        o->property[i].member =
            member_of(o, json_name(&o->job->json, o->property[i].name), o->property[i].schema);
        schema_leave(o->job, mark);
        if (names)
            names[n++] = o->property[i].name;
    }
    o->others = EXPR_NONE;
    if (open && names) {
        mark = schema_enter(o->job, "additionalProperties", NULL);
        free(names);
        /* properties whose schema is false are no additional ones either */
        const size_t most = o->n + json_object_size(json_object_get(schema, "properties"));
        names = mem_alloc(most + 1, sizeof *names);
        n = 0;
        for (size_t i = 0; i < o->n && names; i++)
            names[n++] = o->property[i].name;
        json_object_foreach(json_object_get(schema, "properties"), name, own)
        {
            if (json_is_false(own) && names)
                names[n++] = name;
        }
        if (names)
            o->others = schema_rule(
                o->job, member_of(o, json_other_name(&o->job->json, names, n), others), "member");
        schema_leave(o->job, mark);
    }
    if (!names)
        grammar_no_memory(o->job->json.grammar, "properties");
    free(names);
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

expr_id schema_object(struct schema_job *job, const json_t *schema)
{
    struct grammar *g = job->json.grammar;
    const size_t most = json_object_size(json_object_get(schema, "properties")) +
                        json_array_size(json_object_get(schema, "required"));
    struct object_job o = {.job = job,
                           .property = mem_zalloc(most + 1, sizeof *o.property),
                           .min = schema_count(job, schema, "minProperties", 0),
                           .max = schema_count(job, schema, "maxProperties", EXPR_MANY)};
    const bool counted = o.min > 0 || o.max != EXPR_MANY;
    expr_id id = EXPR_NONE;
    if (!o.property)
        return grammar_no_memory(job->json.grammar, "properties");
    if (most == 0 && !json_object_get(schema, "properties") &&
        !json_object_get(schema, "additionalProperties") && !counted) {
        id = json_any_object(&job->json);
    } else if (list_properties(&o, schema)) {
        bool optional = o.min == 0;
        compile_members(&o, schema);
        for (size_t i = 0; i < o.n; i++)
            optional = optional && !o.property[i].required;
        const expr_id space = json_space(&job->json),
                      members = counted ? counted_members(&o) : all_members(&o);
        const expr_id some = EXPR_SEQ(g, expr_text(g, "{"), space, members, space, expr_text(g, "}"));
        id = optional ? EXPR_ALT(g, expr_text(g, "{}"), some) : some;
    }
    free(o.property);
    return id;
}
