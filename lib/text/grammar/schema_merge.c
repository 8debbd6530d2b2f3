/* Merging JSON Schemas: a schema for the values that several allow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/grammar/schema_parts.h"

/* Keeps a new value until the job ends; counts it. NULL on failure. */
static json_t *keep(struct schema_job *job, json_t *value)
{
    if (!value || json_array_append_new(job->made, value) < 0) {
        grammar_no_memory(job->json.grammar, "merged schemas");
        return NULL;
    }
    job->merges += MERGE_COST + json_object_size(value) + json_array_size(value);
    if (job->merges > SCHEMA_MERGES) {
        schema_fail(job, "the schema is too complex: combinations of its parts are too many");
        return NULL;
    }
    return value;
}

/* Sets a member of a schema that was made here; shares the value. */
static void put(struct schema_job *job, json_t *schema, const char *key, const json_t *value)
{
    if (value && json_object_set(schema, key, (json_t *)(uintptr_t)value) < 0)
        grammar_no_memory(job->json.grammar, "merged schemas");
}

static json_t *copy_of(struct schema_job *job, const json_t *schema)
{
    return keep(job, json_copy((json_t *)(uintptr_t)schema));
}

const json_t *schema_without(struct schema_job *job, const json_t *schema, const char *key)
{
    json_t *copy = copy_of(job, schema);
    if (copy)
        json_object_del(copy, key);
    return copy;
}

/* ---- references ---- */

/* Decodes a part of a JSON pointer in a URI fragment: %xx, then ~0 and ~1. */
static bool decode_part(const char *part, size_t len, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned code;
        char c = part[i];
        if (c == '%' && i + 2 < len && sscanf(part + i + 1, "%2x", &code) == 1) {
            c = (char)code;
            i += 2;
        }
        if (n + 1 >= size || !c)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    char *to = out;
    for (const char *from = out; *from; from++)
        if (*from == '~' && (from[1] == '0' || from[1] == '1'))
            *to++ = *++from == '0' ? '~' : '/';
        else
            *to++ = *from;
    *to = 0;
    return true;
}

const json_t *schema_resolve(struct schema_job *job, const char *ref)
{
    const json_t *at = job->root;
    const char *part = ref + 1;
    char name[256];
    size_t index;
    if (*ref != '#' || (*part && *part != '/')) {
        schema_fail(
            job, "$ref \"%.100s\": only places in the same schema are supported, as #/$defs/name", ref);
        return NULL;
    }
    while (*part && at) {
        const size_t len = strcspn(++part, "/");
        if (!decode_part(part, len, name, sizeof name))
            at = NULL;
        else if (json_is_array(at))
            at = parse_size(name, &index) ? json_array_get(at, index) : NULL;
        else
            at = json_object_get(at, name);
        part += len;
    }
    if (json_is_object(at) || json_is_boolean(at))
        return at;
    schema_fail(job, "$ref \"%.100s\" names no schema", ref);
    return NULL;
}

/* ---- merging ---- */

const json_t *schema_both(struct schema_job *job, const json_t *a, const json_t *b)
{
    return keep(job, json_pack("{s:[O,O]}", "allOf", a, b));
}

const json_t *schema_listing(struct schema_job *job, const json_t *value)
{
    return keep(job, json_pack("{s:[O]}", "enum", value));
}

const json_t *schema_integer(struct schema_job *job, json_int_t value)
{
    return keep(job, json_integer(value));
}

const json_t *schema_lowest(struct schema_job *job)
{
    enum { LOWEST = -999999999 };
    return keep(job, json_pack("{s:i}", "minimum", LOWEST));
}

const json_t *schema_never(struct schema_job *job)
{
    (void)job;
    return json_false();
}

static void merge_types(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    static const struct {
        unsigned type;
        const char *name;
    } names[] = {{SCHEMA_NULL, "null"},      {SCHEMA_BOOLEAN, "boolean"}, {SCHEMA_OBJECT, "object"},
                 {SCHEMA_ARRAY, "array"},    {SCHEMA_STRING, "string"},   {SCHEMA_NUMBER, "number"},
                 {SCHEMA_INTEGER, "integer"}};
    const unsigned types = schema_types(job, a) & schema_types(job, b);
    json_t *list = json_array();
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (types & names[i].type)
            json_array_append_new(list, json_string(names[i].name));
    if (json_object_set_new(to, "type", list) < 0)
        grammar_no_memory(job->json.grammar, "merged schemas");
}

/* Keeps the stricter of two bounds: the highest if `highest`. */
static void merge_bound(struct schema_job *job, json_t *to, const char *key, const json_t *a,
                        const json_t *b, bool highest)
{
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    if (x && y)
        put(job, to, key, (json_number_value(x) > json_number_value(y)) == highest ? x : y);
}

static void merge_required(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const json_t *more = json_object_get(b, "required");
    json_t *list = keep(job, json_copy(json_object_get(a, "required")));
    for (size_t i = 0; i < json_array_size(more) && list; i++)
        json_array_append(list, json_array_get(more, i));
    put(job, to, "required", list);
}

/* What a schema says about members that `properties` does not list. */
static const json_t *merged_member(struct schema_job *job, const json_t *a, const json_t *b)
{
    return !a ? b : !b ? a : schema_both(job, a, b);
}

/* True if a schema has patterns of names, and the other one says something about members, too. */
static bool patterns_meet(const json_t *a, const json_t *b)
{
    return json_object_get(a, "patternProperties") &&
           (json_object_get(b, "patternProperties") || json_object_get(b, "properties") ||
            json_object_get(b, "additionalProperties"));
}

static void merge_properties(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const json_t *const both[] = {a, b};
    if (patterns_meet(a, b) || patterns_meet(b, a)) {
        schema_fail(
            job, "\"patternProperties\" together with properties of another schema is not supported");
        return;
    }
    put(job, to, "propertyNames",
        merged_member(job, json_object_get(a, "propertyNames"), json_object_get(b, "propertyNames")));
    json_t *all = keep(job, json_object());
    for (size_t i = 0; i < 2 && all; i++) {
        const char *name;
        json_t *schema;
        json_object_foreach(json_object_get(both[i], "properties"), name, schema)
        {
            const json_t *merged = merged_member(job, schema_member(a, name), schema_member(b, name));
            if (schema_failed(job))
                return;
            put(job, all, name, merged);
            job->merges++;
        }
    }
    if (json_object_get(a, "properties") || json_object_get(b, "properties"))
        put(job, to, "properties", all);
    put(job, to, "additionalProperties",
        merged_member(job, json_object_get(a, "additionalProperties"),
                      json_object_get(b, "additionalProperties")));
}

static const json_t *item_at(const json_t *schema, size_t i)
{
    const json_t *prefix = json_object_get(schema, "prefixItems");
    return i < json_array_size(prefix) ? json_array_get(prefix, i) : json_object_get(schema, "items");
}

static void merge_items(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const size_t n = size_max(json_array_size(json_object_get(a, "prefixItems")),
                              json_array_size(json_object_get(b, "prefixItems")));
    json_t *prefix = keep(job, json_array());
    for (size_t i = 0; i < n && prefix; i++) {
        const json_t *merged = merged_member(job, item_at(a, i), item_at(b, i));
        if (schema_failed(job))
            return;
        json_array_append(prefix, merged ? (json_t *)(uintptr_t)merged : json_true());
    }
    if (n)
        put(job, to, "prefixItems", prefix);
    put(job, to, "items", merged_member(job, json_object_get(a, "items"), json_object_get(b, "items")));
}

/* Alternatives of both: all pairs. */
static void merge_alternatives(struct schema_job *job, json_t *to, const char *key, const json_t *a,
                               const json_t *b)
{
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    json_t *list = x && y ? keep(job, json_array()) : NULL;
    for (size_t i = 0; i < json_array_size(x) && list; i++)
        for (size_t k = 0; k < json_array_size(y) && !schema_failed(job); k++)
            json_array_append(list, (json_t *)(uintptr_t)schema_both(job, json_array_get(x, i),
                                                                     json_array_get(y, k)));
    if (list)
        put(job, to, key, list);
}

/* Values of both lists; `const` is a list of one. */
static void merge_values(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const json_t *const both[] = {a, b};
    json_t *left = NULL;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) {
            const json_t *values = json_object_get(both[i], k ? "const" : "enum");
            json_t *rest = values ? keep(job, json_array()) : NULL;
            json_t *known = left ? schema_value_set(job, left) : NULL;
            if (k && values)
                values = keep(job, json_pack("[O]", values));
            for (size_t v = 0; v < json_array_size(values) && rest; v++)
                if (!left || schema_set_has(job, known, json_array_get(values, v)))
                    json_array_append(rest, json_array_get(values, v));
            json_decref(known);
            left = rest ? rest : left;
        }
    if (!left)
        return;
    json_object_del(to, "const");
    put(job, to, "enum", left);
}

/* Patterns and formats that `to`, which has those of a, does not have yet. */
static void merge_strings(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"pattern", "format", "contentEncoding"};
    const json_t *more = json_object_get(b, SCHEMA_MORE_STRINGS);
    json_t *list = keep(job, json_array());
    if (list)
        json_array_extend(list, json_object_get(a, SCHEMA_MORE_STRINGS));
    for (size_t i = 0; i < json_array_size(more); i++)
        json_array_append(list, json_array_get(more, i));
    for (size_t i = 0; i < ARRAY_LEN(keys) && list; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x && y && !json_equal(x, y))
            json_array_append_new(list, json_pack("{s:O}", keys[i], y));
    }
    if (json_array_size(list))
        put(job, to, SCHEMA_MORE_STRINGS, list);
}

/* Multiples of both: of their least common multiple. */
static void merge_factors(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const json_t *x = json_object_get(a, "multipleOf"), *y = json_object_get(b, "multipleOf");
    if (!x || !y || json_equal(x, y))
        return;
    json_t *both = json_common_multiple(x, y);
    if (!both)
        schema_fail(job, "two different values of \"multipleOf\" together are not supported");
    else
        put(job, to, "multipleOf", keep(job, both));
}

const json_t *schema_merge(struct schema_job *job, const json_t *a, const json_t *b)
{
    static const struct {
        const char *key;
        bool highest;
    } bounds[] = {{"minimum", true},       {"exclusiveMinimum", true}, {"minLength", true},
                  {"minItems", true},      {"maximum", false},         {"exclusiveMaximum", false},
                  {"maxLength", false},    {"maxItems", false},        {"minProperties", true},
                  {"maxProperties", false}};
    if (++job->depth > SCHEMA_DEPTH) {
        schema_fail(job, "schemas are nested too deeply, or refer to themselves");
        return NULL;
    }
    a = schema_expand(job, a);
    b = a ? schema_expand(job, b) : NULL;
    job->depth--;
    if (!a || !b || json_is_false(a) || json_is_true(b))
        return b ? a : NULL;
    if (json_is_true(a) || json_is_false(b))
        return b;
    json_t *to = copy_of(job, a);
    if (!to || json_object_update_missing(to, (json_t *)(uintptr_t)b) < 0)
        return NULL;
    if (json_object_get(a, "type") || json_object_get(b, "type"))
        merge_types(job, to, a, b);
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
        merge_bound(job, to, bounds[i].key, a, b, bounds[i].highest);
    if (json_object_get(a, "required") && json_object_get(b, "required"))
        merge_required(job, to, a, b);
    merge_properties(job, to, a, b);
    merge_items(job, to, a, b);
    merge_alternatives(job, to, "anyOf", a, b);
    merge_alternatives(job, to, "oneOf", a, b);
    merge_values(job, to, a, b);
    if (json_is_true(json_object_get(b, "uniqueItems")))
        put(job, to, "uniqueItems", json_true());
    merge_factors(job, to, a, b);
    merge_strings(job, to, a, b);
    return schema_failed(job) ? NULL : to;
}

/* "type" with null. */
static void add_null(struct schema_job *job, json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    json_t *types = !type                 ? NULL
                    : json_is_array(type) ? json_copy((json_t *)(uintptr_t)type)
                                          : json_pack("[O]", type);
    if (type && (json_array_append_new(types, json_string("null")) < 0 ||
                 json_object_set_new(schema, "type", types) < 0))
        grammar_no_memory(job->json.grammar, "a schema");
}

/* A schema with the keywords of earlier drafts, and of OpenAPI, as those of today. */
static const json_t *modernise(struct schema_job *job, const json_t *schema)
{
    static const char *const limits[][2] = {{"exclusiveMinimum", "minimum"},
                                            {"exclusiveMaximum", "maximum"}};
    const json_t *items = json_object_get(schema, "items"), *null = json_object_get(schema, "nullable");
    if (!null && !json_is_array(items) && !json_is_boolean(json_object_get(schema, limits[0][0])) &&
        !json_is_boolean(json_object_get(schema, limits[1][0])))
        return schema;
    json_t *to = copy_of(job, schema);
    for (size_t i = 0; i < ARRAY_LEN(limits) && to; i++) {
        const json_t *exclusive = json_object_get(schema, limits[i][0]);
        if (!json_is_boolean(exclusive))
            continue;
        json_object_del(to, limits[i][0]);
        if (json_is_true(exclusive)) {
            put(job, to, limits[i][0], json_object_get(schema, limits[i][1]));
            json_object_del(to, limits[i][1]);
        }
    }
    if (json_is_array(items) && to) {
        json_object_del(to, "items");
        if (json_array_size(items))
            put(job, to, "prefixItems", items);
        put(job, to, "items", json_object_get(schema, "additionalItems"));
    }
    if (json_is_true(null) && to)
        add_null(job, to);
    json_object_del(to, "nullable");
    return to;
}

const json_t *schema_expand(struct schema_job *job, const json_t *schema)
{
    for (size_t steps = 0; json_is_object(schema); steps++) {
        const json_t *ref = json_object_get(schema, "$ref"), *all = json_object_get(schema, "allOf");
        const json_t *rest, *merged;
        if (!schema_check(job, schema))
            return NULL;
        if (!ref && !all)
            return modernise(job, schema);
        if (steps > SCHEMA_DEPTH) {
            schema_fail(job, "the schema refers to itself");
            return NULL;
        }
        rest = schema_without(job, schema, ref ? "$ref" : "allOf");
        if (!rest)
            return NULL;
        const json_t *target = ref ? schema_resolve(job, json_string_value(ref)) : NULL;
        if (ref && !target)
            return NULL;
        merged = rest;
        if (ref)
            merged = schema_is_any(rest) ? target : schema_merge(job, rest, target);
        for (size_t i = 0; i < json_array_size(ref ? NULL : all) && merged; i++)
            merged = schema_merge(job, merged, json_array_get(all, i));
        schema = merged;
    }
    return schema;
}
