/* Compiles JSON Schemas to grammars. Schemas that $ref names are rules, compiled one after the other,
 * so that they may refer to each other. */
#include "text/grammar/json_schema.h"

#include "text/grammar/expr.h"
#include "text/grammar/schema.h"

/* ---- whether values and schemas agree: for values listed by enum, and for oneOf, whose alternatives exclude each other ---- */

enum schema_fit { FIT_NO, FIT_YES, FIT_UNKNOWN };

static bool schema_excludes(struct schema_job *job, const json_t *a, const json_t *b, size_t depth);

enum { OVERLAP_DEPTH = 32 };

static bool is_required(struct schema_job *job, const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    job->compared += json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return true;
    return false;
}

static bool is_listed(struct schema_job *job, const json_t *value, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum"), *only = json_object_get(schema, "const");
    if (list && job->values_of != list) {
        json_decref(job->values);
        job->values = schema_value_set(job, list);
        job->values_of = list;
        job->compared += json_array_size(list);
    }
    return (!list || schema_set_has(job, job->values, value)) &&
           (!only || schema_values_equal(value, only));
}

static bool count_fits(const json_t *schema, const char *min, const char *max, size_t n)
{
    const json_t *least = json_object_get(schema, min), *most = json_object_get(schema, max);
    return (!least || (double)n >= json_number_value(least)) &&
           (!most || (double)n <= json_number_value(most));
}

static bool number_fits(const json_t *value, const json_t *schema)
{
    const double x = json_number_value(value);
    for (int upper = 0; upper < 2; upper++) {
        const struct number_bound bound = schema_bound(schema, upper);
        const double limit = json_number_value(bound.value), sign = upper ? -1 : 1;
        if (bound.value && (bound.exclusive ? sign * x <= sign * limit : sign * x < sign * limit))
            return false;
    }
    const json_t *factor = json_object_get(schema, "multipleOf");
    return !factor || json_is_multiple(value, factor);
}

/* Whether the items are different: unknown of nested ones, whose numbers would have to be compared. */
static enum schema_fit are_unique(const json_t *list)
{
    enum schema_fit fit = FIT_YES;
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++) {
            const json_t *a = json_array_get(list, i), *b = json_array_get(list, k);
            if (schema_values_equal(a, b))
                return FIT_NO;
            if ((json_is_array(a) && json_is_array(b)) || (json_is_object(a) && json_is_object(b)))
                fit = FIT_UNKNOWN;
        }
    return fit;
}

static bool has_any(const json_t *schema, const char *const *key)
{
    while (*key && !json_object_get(schema, *key))
        key++;
    return *key;
}

static bool has_required(const json_t *object, const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(object, json_string_value(json_array_get(required, i))))
            return false;
    return true;
}

/* Whether a value is allowed by an expanded schema. */
static enum schema_fit schema_fits(struct schema_job *job, const json_t *value, const json_t *schema)
{
    static const char *const of_objects[] = {"properties", "additionalProperties", "patternProperties",
                                             "propertyNames", NULL};
    static const char *const of_arrays[] = {"items", "prefixItems", NULL};
    static const char *const of_all[] = {"anyOf", "oneOf", NULL};
    enum schema_fit fit = FIT_YES;
    if (!json_is_object(schema))
        return json_is_true(schema) ? FIT_YES : FIT_NO;
    if (!(schema_types(job, schema) & schema_type_of(value)) || !is_listed(job, value, schema) ||
        (json_is_number(value) && !number_fits(value, schema)) ||
        (json_is_string(value) &&
         !schema_string_fits(job, schema, json_string_value(value), json_string_length(value))))
        return FIT_NO;
    if (json_is_array(value)) {
        if (!count_fits(schema, "minItems", "maxItems", json_array_size(value)))
            return FIT_NO;
        if (json_is_true(json_object_get(schema, "uniqueItems")))
            fit = are_unique(value);
    }
    if (json_is_object(value) &&
        (!count_fits(schema, "minProperties", "maxProperties", json_object_size(value)) ||
         !has_required(value, schema)))
        return FIT_NO;
    const bool unknown = has_any(schema, of_all) ||
                         (json_is_object(value) && has_any(schema, of_objects)) ||
                         (json_is_array(value) && has_any(schema, of_arrays));
    return fit == FIT_YES && unknown ? FIT_UNKNOWN : fit;
}

/* ---- what is generated for one schema is not allowed by another ---- */

/* The i-th value of a const, or else of an enum; NULL: there are no more. */
static const json_t *listed_value(const json_t *schema, size_t i)
{
    const json_t *only = json_object_get(schema, "const");
    return !only ? json_array_get(json_object_get(schema, "enum"), i) : i == 0 ? only : NULL;
}

static bool values_exclude(struct schema_job *job, const json_t *a, const json_t *b)
{
    json_t *own = json_array(); /* one schema after the other, as each is prepared for many values */
    bool exclude = json_object_get(a, "const") || json_object_get(a, "enum");
    const json_t *value;
    for (size_t i = 0; (value = listed_value(a, i)); i++)
        if (schema_fits(job, value, a) != FIT_NO &&
            json_array_append(own, (json_t *)(uintptr_t)value) < 0)
            grammar_no_memory(job->json.grammar, "a list of values");
    for (size_t i = 0; i < json_array_size(own) && exclude; i++)
        exclude = schema_fits(job, json_array_get(own, i), b) == FIT_NO;
    json_decref(own);
    return exclude;
}

static bool counts_exclude(const json_t *a, const json_t *b, const char *min, const char *max)
{
    const json_t *least_a = json_object_get(a, min), *most_a = json_object_get(a, max);
    const json_t *least_b = json_object_get(b, min), *most_b = json_object_get(b, max);
    return (most_a && least_b && json_number_value(most_a) < json_number_value(least_b)) ||
           (most_b && least_a && json_number_value(most_b) < json_number_value(least_a));
}

static bool numbers_exclude(const json_t *a, const json_t *b)
{
    for (int swapped = 0; swapped < 2; swapped++) {
        const struct number_bound most = schema_bound(swapped ? b : a, true),
                                  least = schema_bound(swapped ? a : b, false);
        const double top = json_number_value(most.value), bottom = json_number_value(least.value);
        if (most.value && least.value &&
            (top < bottom || (top == bottom && (most.exclusive || least.exclusive))))
            return true;
    }
    return false;
}

/* True if objects generated for `a` never have the member. */
static bool never_has(struct schema_job *job, const json_t *a, const char *name)
{
    const json_t *properties = json_object_get(a, "properties");
    const json_t *others = json_object_get(a, "additionalProperties");
    return !json_object_get(properties, name) && !is_required(job, a, name) &&
           (others ? json_is_false(others) : properties != NULL);
}

static bool objects_exclude(struct schema_job *job, const json_t *a, const json_t *b, size_t depth)
{
    const json_t *required = json_object_get(b, "required");
    for (size_t i = 0; i < json_array_size(required) && job->compared < SCHEMA_COMPARED; i++)
        if (never_has(job, a, json_string_value(json_array_get(required, i))))
            return true;
    for (int second = 0; second < 2; second++) {
        required = json_object_get(second ? b : a, "required");
        for (size_t i = 0; i < json_array_size(required) && !schema_failed(job); i++) {
            const char *name = json_string_value(json_array_get(required, i));
            const json_t *x = schema_member(a, name), *y = schema_member(b, name);
            if (json_is_false(x) || json_is_false(y) ||
                (x && y && schema_excludes(job, x, y, depth + 1)))
                return true;
        }
    }
    return false;
}

/* True if no text that is generated for `a` is allowed by `b`. */
static bool schema_excludes(struct schema_job *job, const json_t *a, const json_t *b, size_t depth)
{
    if (depth > OVERLAP_DEPTH || ++job->compared > SCHEMA_COMPARED || schema_failed(job))
        return false;
    a = schema_expand(job, a);
    b = a ? schema_expand(job, b) : NULL;
    if (!b || json_is_false(a) || json_is_false(b))
        return b != NULL;
    if (!json_is_object(a) || !json_is_object(b))
        return false;
    if (values_exclude(job, a, b) || values_exclude(job, b, a))
        return true;
    const unsigned types = schema_types(job, a) & schema_types(job, b);
    const unsigned numbers = SCHEMA_INTEGER | SCHEMA_NUMBER;
    return !(types & (SCHEMA_NULL | SCHEMA_BOOLEAN)) && (!(types & numbers) || numbers_exclude(a, b)) &&
           (!(types & SCHEMA_STRING) || counts_exclude(a, b, "minLength", "maxLength")) &&
           (!(types & SCHEMA_ARRAY) || counts_exclude(a, b, "minItems", "maxItems")) &&
           (!(types & SCHEMA_OBJECT) || objects_exclude(job, a, b, depth));
}

/* ---- oneOf ---- */

/* Adds the values that a schema lists to a set; false: it lists none, or one that is there. */
static bool add_listed(struct schema_job *job, const json_t *schema, json_t *set)
{
    const json_t *value;
    size_t n = 0;
    for (; !schema_failed(job) && (value = listed_value(schema, n)); n++) {
        if (schema_set_has(job, set, value))
            return false;
        schema_set_add(job, set, value);
    }
    return n > 0;
}

/* True if all schemas list values, and no two the same; of the member `name` of objects that they require, unless
 * it is NULL. */
static bool list_different(struct schema_job *job, const json_t *const *schema, size_t n,
                           const char *name)
{
    AUTO(json_auto) json_t *set = json_object();
    bool different = true;
    for (size_t i = 0; i < n && different && !schema_failed(job); i++) {
        const json_t *of = schema[i];
        if (name && (schema_types(job, of) != SCHEMA_OBJECT || !is_required(job, of, name)))
            different = false;
        else if (name)
            of = schema_expand(job, schema_member(of, name));
        different = different && add_listed(job, of, set);
    }
    return different;
}

/* True if the schemas list different values, or different ones of a member that they require. */
static bool are_told_apart(struct schema_job *job, const json_t *const *schema, size_t n)
{
    enum { MOST_NAMES = 16 };
    const json_t *required = json_object_get(schema[0], "required");
    if (list_different(job, schema, n, NULL))
        return true;
    for (size_t i = 0; i < size_min(json_array_size(required), MOST_NAMES); i++)
        if (list_different(job, schema, n, json_string_value(json_array_get(required, i))))
            return true;
    return false;
}

/* Fails unless the schemas exclude each other, as oneOf asks for. */
static void schema_check_exclusive(struct schema_job *job, const json_t *const *branch, size_t n)
{
    enum { MOST_COMPARED = 256 };
    const json_t **schema = mem_alloc(n, sizeof *schema);
    if (!schema)
        grammar_no_memory(job->json.grammar, "schemas");
    for (size_t i = 0; i < n && !schema_failed(job); i++)
        schema[i] = schema_expand(job, branch[i]);
    if (schema_failed(job) || are_told_apart(job, schema, n)) {
        free(schema);
        return;
    }
    bool much = n > MOST_COMPARED;
    for (size_t i = 0; i < n && !much; i++)
        for (size_t k = 0; k < n && !schema_failed(job) && !much; k++)
            if (i != k && !schema_excludes(job, schema[i], schema[k], 0) &&
                !(much = job->compared > SCHEMA_COMPARED))
                schema_fail(job,
                            "\"oneOf\": its schemas %zu and %zu may both allow a value: make them "
                            "exclude each other, or use anyOf",
                            i + 1, k + 1);
    if (much)
        schema_fail(
            job,
            "\"oneOf\": %zu schemas are too many to compare, or too large: give each a required "
            "property with a const of its own, or use anyOf",
            n);
    free(schema);
}

/* ---- objects of a JSON Schema: properties in the schema's order, then additional ones ---- */

/* Lists of min to max different items: in any order, if the items' schema lists at most SCHEMA_UNIQUE_VALUES values; in
 * its order, if it lists more; or of items that begin differently. Without `schema`, items are any values. */
enum { SCHEMA_UNIQUE_VALUES = 10 };

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
    bool call;         /* it is written as a call's arguments */
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
    return o->call ? EXPR_SEQ(g, name, expr_text(g, "="), value)
                   : EXPR_SEQ(g, name, expr_text(g, ":"), EXPR_OPTIONAL(g, expr_text(g, " ")), value);
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
    o->others = expr_as_rule(g, expr_list_alt(g, &list), "member");
    free(names);
}

static void compile_members(struct object_job *o, const json_t *schema)
{
    for (size_t i = 0; i < o->n && !schema_failed(o->job); i++) {
        const size_t mark = schema_enter(o->job, "properties", o->property[i].name);
        o->job->json.style.call = o->call;
        const expr_id name = json_name(&o->job->json, o->property[i].name);
        o->job->json.style.call = false;
        o->property[i].member = member_of(o, name, o->property[i].schema);
        schema_leave(o->job, mark);
    }
    if (!schema_failed(o->job))
        compile_others(o, schema);
}

/* What may follow the members before property i, of which there is at least one. */
static expr_id rest_from(struct object_job *o, size_t i, expr_id after)
{
    struct grammar *g = o->job->json.grammar;
    const struct property *p = &o->property[i];
    const expr_id next = EXPR_SEQ(g, json_comma(&o->job->json), p->member);
    return EXPR_SEQ(g, p->required ? next : EXPR_OPTIONAL(g, next), after);
}

/* The members, of which the first one present is property i or a later one. Rules share what
 * follows. */
static expr_id all_members(struct object_job *o)
{
    struct grammar *g = o->job->json.grammar;
    struct expr_list starts = {0};
    size_t leading = 0; /* optional properties before the first required one */
    while (leading < o->n && !o->property[leading].required)
        leading++;
    for (size_t i = 0; i < leading; i++)
        o->property[i].member = expr_as_rule(g, o->property[i].member, "member");
    if (leading && leading < o->n)
        o->property[leading].member = expr_as_rule(g, o->property[leading].member, "member");
    expr_id after = json_more(&o->job->json, o->others, 0, EXPR_MANY, 0);
    if (leading == o->n)
        expr_list_add(g, &starts, EXPR_SEQ(g, o->others, after));
    for (size_t i = o->n; i-- > 0 && !g->failed;) {
        if (i <= leading) {
            if (leading > 0)
                after = expr_as_rule(g, after, "members");
            expr_list_add(g, &starts, EXPR_SEQ(g, o->property[i].member, after));
        }
        if (i > 0)
            after = rest_from(o, i, after);
    }
    return expr_list_alt(g, &starts);
}

/* Additional members behind `count` others. Their names may repeat, so that at most one of them counts. */
static expr_id counted_others(struct object_job *o, uint32_t count)
{
    if (o->others == EXPR_NONE || o->max == count)
        return o->min > count || !count ? EXPR_NONE : EXPR_EMPTY;
    if (o->min > count + 1) {
        o->uncounted = true;
        return EXPR_NONE;
    }
    const expr_id more = json_more(&o->job->json, o->others, o->min, o->max, count ? count : 1);
    return count ? more : EXPR_SEQ(o->job->json.grammar, o->others, more);
}

/* The members from property i on, behind `count` others; at least one in all. */
static expr_id counted_from(struct object_job *o, size_t i, uint32_t count)
{
    struct grammar *g = o->job->json.grammar;
    expr_id *known = &o->rest[i * (o->counts + 1) + count], with = EXPR_NONE, without = EXPR_NONE;
    if (*known != EXPR_EMPTY || g->failed)
        return *known;
    if (i == o->n) {
        const expr_id others = counted_others(o, count);
        return *known = others == EXPR_EMPTY ? others : expr_as_rule(g, others, "members");
    }
    if (count < o->max)
        with = EXPR_SEQ(g, count ? json_comma(&o->job->json) : EXPR_EMPTY, o->property[i].member,
                        counted_from(o, i + 1, count < o->counts ? count + 1 : count));
    if (!o->property[i].required)
        without = counted_from(o, i + 1, count);
    return *known = expr_as_rule(g, EXPR_ALT(g, with, without), "members");
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
        o->property[i].member = expr_as_rule(o->job->json.grammar, o->property[i].member, "member");
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
        names = schema_merge(
            o->job, names,
            schema_keep(o->job, json_pack("{s:[O]}", "enum", json_object_get(names, "const"))));
    if (json_is_object(names) && !(schema_types(o->job, names) & SCHEMA_STRING))
        names = json_false();
    schema_leave(o->job, mark);
    o->names = json_is_true(names) || (names && schema_is_any(names)) ? NULL : names;
}

static expr_id listed_object(struct object_job *o, const json_t *schema)
{
    struct schema_job *job = o->job;
    struct grammar *g = job->json.grammar;
    const bool counted = o->min > 0 || o->max != EXPR_MANY;
    bool optional = o->min == 0;
    o->call = job->json.style.call;
    job->json.style.call = false; /* of the outermost one only */
    if (!list_properties(o, schema) || schema_failed(job))
        return EXPR_NONE;
    compile_members(o, schema);
    for (size_t i = 0; i < o->n; i++)
        optional = optional && !o->property[i].required;
    const expr_id members = counted ? counted_members(o) : all_members(o);
    const expr_id some = json_brackets(&job->json, o->call ? "(" : "{", members, o->call ? ")" : "}");
    return optional ? EXPR_ALT(g, expr_text(g, o->call ? "()" : "{}"), some) : some;
}

/* Objects that a schema allows: its properties in their order. */
static expr_id schema_object(struct schema_job *job, const json_t *schema)
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
    const expr_id id = schema_failed(job) ? EXPR_NONE : listed_object(&o, schema);
    json_decref(o.index);
    free(o.property);
    return id;
}

/* Lists of different items: an automaton whose states are the sets of values, or of beginnings of items, that a list has
 * so far. */

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
    const expr_id comma = json_comma(&job->json);
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
            expr_as_rule(g, json_constant(&job->json, json_array_get(values, i)), "item");
        for (size_t c = 0; c <= counts; c++) {
            const size_t more = c < counts ? c + 1 : max < n ? SIZE_MAX : counts;
            const expr_id taken =
                more == SIZE_MAX ? EXPR_NONE : EXPR_SEQ(g, c ? comma : EXPR_EMPTY, value, after[more]);
            if (taken != EXPR_NONE)
                after[c] = expr_as_rule(g, EXPR_ALT(g, taken, after[c]), "items");
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
    static const char others[] = "tfn[{TFN";
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
    char_class_release(&start);
    char_class_release(&digit);
    char_class_release(&other);
    return EXPR_ALT(g, EXPR_SEQ(g, expr_text(g, "\""), text), EXPR_SEQ(g, expr_text(g, "-"), negative),
                    rest);
}

static void find_groups(struct unique_job *u, const json_t *schema)
{
    struct schema_job *job = u->job;
    struct grammar *g = job->json.grammar;
    /* numbers with a bound have no exponent: the first digits of equal ones are the same */
    enum { LOWEST = -999999999 };
    const json_t *bound = schema_keep(job, json_pack("{s:i}", "minimum", LOWEST)),
                 *items = schema_both(job, schema, bound);
    const expr_id item = items ? job->compile(job, items) : EXPR_NONE;
    for (uint32_t i = 0; i < SCHEMA_UNIQUE_VALUES && !g->failed; i++) {
        u->value[u->n] = expr_as_rule(g, items_of_group(g, item, i), "item");
        u->n += u->value[u->n] != EXPR_NONE;
    }
}

/* What may follow the items of a set, as a rule. */
static expr_id after_set(struct unique_job *u, size_t set, uint32_t count)
{
    struct grammar *g = u->job->json.grammar;
    const expr_id comma = set ? json_comma(&u->job->json) : EXPR_EMPTY;
    expr_id list[SCHEMA_UNIQUE_VALUES + 1];
    size_t n = 0;
    if (u->after[set] != EXPR_EMPTY || g->failed)
        return u->after[set];
    if (count >= u->min && count)
        list[n++] = EXPR_EMPTY;
    for (size_t i = 0; i < u->n && count < u->max; i++)
        if (!(set >> i & 1)) {
            const expr_id more = after_set(u, set | (size_t)1 << i, count + 1);
            list[n++] = EXPR_SEQ(g, comma, u->value[i], more);
        }
    u->after[set] = expr_as_rule(g, expr_alt(g, list, n), "items");
    return u->after[set];
}

/* The items of lists that have one. */
static expr_id some_items(struct unique_job *u, const json_t *schema)
{
    struct schema_job *job = u->job;
    AUTO(json_auto) json_t *values = json_is_object(schema) ? listed_values(job, schema) : NULL;
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
    return id;
}

static expr_id schema_unique_items(struct schema_job *job, const json_t *schema, uint32_t min,
                                   uint32_t max)
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
    return min > 0 ? some : EXPR_ALT(g, none, some);
}

/* ---- values of each type ---- */

/* The bound, or the format's limit of integers if that is stricter. */
static struct number_bound stricter(struct schema_job *job, struct number_bound bound, json_int_t limit,
                                    bool upper)
{
    const double given = json_number_value(bound.value);
    if (bound.value && (upper ? given <= (double)limit : given >= (double)limit))
        return bound;
    return (struct number_bound){schema_keep(job, json_integer(limit)), false};
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
    return expr_as_rule(job->json.grammar, schema_compile(job, schema), "item");
}

static expr_id compile_prefix(struct schema_job *job, const json_t *prefix, size_t n)
{
    struct grammar *g = job->json.grammar;
    struct expr_list list = {0};
    for (size_t i = 0; i < n && !g->failed; i++) {
        const size_t mark = schema_enter_item(job, "prefixItems", i);
        if (i)
            expr_list_add(g, &list, json_comma(&job->json));
        expr_list_add(g, &list, schema_compile(job, json_array_get(prefix, i)));
        schema_leave(job, mark);
    }
    return expr_list_seq(g, &list);
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
    const expr_id more = json_more(&job->json, item, min, max, (uint32_t)n);
    return json_brackets(&job->json, "[", EXPR_SEQ(g, compile_prefix(job, prefix, n), more), "]");
}

static expr_id compile_types(struct schema_job *job, const json_t *schema)
{
    struct grammar *g = job->json.grammar;
    const unsigned types = schema_types(job, schema);
    expr_id list[8];
    size_t n = 0;
    if (types & SCHEMA_NULL)
        list[n++] = json_word(&job->json, "null");
    if (types & SCHEMA_BOOLEAN)
        list[n++] = EXPR_ALT(g, json_word(&job->json, "true"), json_word(&job->json, "false"));
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
    free(branch);
    return expr_list_alt(g, &all);
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
    *ref = (struct schema_ref){schema, pointer, grammar_add_rule(g, pointer, strlen(pointer))};
    if (json_object_set_new(job->ref_index, pointer, json_integer((json_int_t)job->n_refs)) < 0)
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

void json_schema_parse(struct grammar *grammar, const json_t *schema)
{
    json_schema_parse_as(grammar, schema, NULL);
}

void json_schema_parse_as(struct grammar *grammar, const json_t *schema, const struct json_style *style)
{
    struct schema_job job = {
        .json = {.grammar = grammar, .style = style ? *style : (struct json_style){0}},
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
    free(job.ref);
    buf_release(&job.path);
}
