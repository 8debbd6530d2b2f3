/* Whether values and schemas agree: for values listed by enum, and for oneOf, whose alternatives must
 * exclude each other. */
#include <string.h>

#include "text/grammar/schema_string.h"

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

static bool has_any(const json_t *schema, const char *const *key, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_get(schema, key[i]))
            return true;
    return false;
}

enum schema_fit schema_fits(struct schema_job *job, const json_t *value, const json_t *schema)
{
    static const char *const of_objects[] = {"properties", "additionalProperties", "patternProperties",
                                             "propertyNames"};
    static const char *const of_arrays[] = {"items", "prefixItems"};
    static const char *const of_all[] = {"anyOf", "oneOf"};
    const unsigned type = schema_type_of(value);
    if (!json_is_object(schema))
        return json_is_true(schema) ? FIT_YES : FIT_NO;
    if (!(schema_types(job, schema) & type) || !is_listed(job, value, schema))
        return FIT_NO;
    if (json_is_number(value) && !number_fits(value, schema))
        return FIT_NO;
    if (json_is_string(value) &&
        !schema_string_fits(job, schema, json_string_value(value), json_string_length(value)))
        return FIT_NO;
    if (json_is_array(value) && !count_fits(schema, "minItems", "maxItems", json_array_size(value)))
        return FIT_NO;
    const enum schema_fit unique =
        json_is_array(value) && json_is_true(json_object_get(schema, "uniqueItems")) ? are_unique(value)
                                                                                     : FIT_YES;
    if (unique == FIT_NO ||
        (json_is_object(value) &&
         !count_fits(schema, "minProperties", "maxProperties", json_object_size(value))))
        return FIT_NO;
    if (json_is_object(value)) {
        const json_t *required = json_object_get(schema, "required");
        for (size_t i = 0; i < json_array_size(required); i++)
            if (!json_object_get(value, json_string_value(json_array_get(required, i))))
                return FIT_NO;
    }
    const bool unknown =
        unique == FIT_UNKNOWN || has_any(schema, of_all, ARRAY_LEN(of_all)) ||
        (json_is_object(value) && has_any(schema, of_objects, ARRAY_LEN(of_objects))) ||
        (json_is_array(value) && has_any(schema, of_arrays, ARRAY_LEN(of_arrays)));
    return unknown ? FIT_UNKNOWN : FIT_YES;
}

/* ---- what is generated for one schema is not allowed by another ---- */

/* The values of an enum or const; NULL: any. */
static const json_t *values_of(const json_t *schema, size_t *n)
{
    const json_t *only = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    *n = only ? 1 : json_array_size(list);
    return only ? only : list;
}

static bool values_exclude(struct schema_job *job, const json_t *a, const json_t *b)
{
    size_t n;
    const json_t *values = values_of(a, &n);
    json_t *own = json_array(); /* one schema after the other, as each is prepared for many values */
    bool exclude = values != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(a, "const") ? values : json_array_get(values, i);
        if (schema_fits(job, value, a) != FIT_NO &&
            json_array_append(own, (json_t *)(uintptr_t)value) < 0)
            grammar_no_memory(job->json.grammar, "a list of values");
    }
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
    for (int turn = 0; turn < 2; turn++) {
        const struct number_bound most = schema_bound(turn ? b : a, true),
                                  least = schema_bound(turn ? a : b, false);
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
    for (int turn = 0; turn < 2; turn++) {
        required = json_object_get(turn ? b : a, "required");
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

bool schema_excludes(struct schema_job *job, const json_t *a, const json_t *b, size_t depth)
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
    size_t n;
    const json_t *values = values_of(schema, &n);
    for (size_t i = 0; i < n && !schema_failed(job); i++) {
        const json_t *value = json_object_get(schema, "const") ? values : json_array_get(values, i);
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
    json_t *set = json_object();
    bool different = true;
    for (size_t i = 0; i < n && different && !schema_failed(job); i++) {
        const json_t *of = schema[i];
        if (name && (schema_types(job, of) != SCHEMA_OBJECT || !is_required(job, of, name)))
            different = false;
        else if (name)
            of = schema_expand(job, schema_member(of, name));
        different = different && add_listed(job, of, set);
    }
    json_decref(set);
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

void schema_check_exclusive(struct schema_job *job, const json_t *const *branch, size_t n)
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
