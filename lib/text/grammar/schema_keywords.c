/* Keywords of JSON Schemas: which there are, and what values they have. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/schema_parts.h"

expr_id schema_fail(struct schema_job *job, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return grammar_fail(job->json.grammar, "JSON Schema, at #%.150s: %s", buf_text(&job->path), text);
}

expr_id schema_name_place(struct schema_job *job, const char *keyword)
{
    struct grammar *g = job->json.grammar;
    const struct err why = g->why;
    if (why.code == ERR_FAILED) {
        g->failed = false;
        schema_fail(job, "%s%s", keyword, why.text);
    }
    return EXPR_NONE;
}

void schema_note(struct schema_job *job, const char *format, ...)
{
    struct err *note = &job->json.grammar->note;
    char text[200];
    va_list args;
    if (note->text[0])
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)err_set(note, "JSON Schema, at #%.150s: %s", buf_text(&job->path), text);
    text_make_printable(note->text, strlen(note->text), "");
}

/* Appends a step of a JSON pointer (RFC 6901). */
static int add_step(struct buf *path, const char *name, struct err *err)
{
    int rc = buf_add(path, "/", 1, err);
    for (; *name && rc == 0; name++)
        rc = *name == '~'   ? buf_add(path, "~0", 2, err)
             : *name == '/' ? buf_add(path, "~1", 2, err)
                            : buf_add(path, name, 1, err);
    return rc;
}

size_t schema_enter(struct schema_job *job, const char *key, const char *name)
{
    const size_t mark = job->path.len;
    struct err *why = &job->json.grammar->why;
    if (!schema_failed(job) &&
        (add_step(&job->path, key, why) < 0 || (name && add_step(&job->path, name, why) < 0)))
        job->json.grammar->failed = true;
    return mark;
}

size_t schema_enter_item(struct schema_job *job, const char *key, size_t index)
{
    char name[24];
    snprintf(name, sizeof name, "%zu", index);
    return schema_enter(job, key, name);
}

void schema_leave(struct schema_job *job, size_t mark)
{
    if (job->path.data && !schema_failed(job)) {
        job->path.len = mark;
        job->path.data[mark] = 0;
    }
}

enum keyword_kind {
    ANNOTATION, /* says nothing about which values are allowed */
    SCHEMA,
    SCHEMAS,    /* a list of schemas, at least one */
    SCHEMA_MAP, /* an object of schemas */
    ITEMS,      /* a schema, or a list of them (up to draft 7) */
    TYPES,
    VALUES, /* a list of at least one value */
    VALUE,
    NUMBER,
    LIMIT, /* a number, or true or false (draft 4) */
    NATURAL,
    POSITIVE,
    BOOLEAN,
    STRING,
    STRINGS,
    REFERENCE,
    MERGED /* made by merging */
};

static const struct keyword {
    const char *name;
    enum keyword_kind kind;
} keywords[] = {
    {"type", TYPES},
    {"enum", VALUES},
    {"const", VALUE},
    {"properties", SCHEMA_MAP},
    {"required", STRINGS},
    {"additionalProperties", SCHEMA},
    {"patternProperties", SCHEMA_MAP},
    {"propertyNames", SCHEMA},
    {"items", ITEMS},
    {"additionalItems", SCHEMA},
    {"prefixItems", SCHEMAS},
    {"minItems", NATURAL},
    {"maxItems", NATURAL},
    {"minLength", NATURAL},
    {"maxLength", NATURAL},
    {"pattern", STRING},
    {"format", STRING},
    {"minimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMinimum", LIMIT},
    {"exclusiveMaximum", LIMIT},
    {"multipleOf", POSITIVE},
    {"uniqueItems", BOOLEAN},
    {"minProperties", NATURAL},
    {"maxProperties", NATURAL},
    {"anyOf", SCHEMAS},
    {"oneOf", SCHEMAS},
    {"allOf", SCHEMAS},
    {"$ref", REFERENCE},
    {"nullable", BOOLEAN},
    {"contentEncoding", STRING},
    {"contentMediaType", STRING},
    {SCHEMA_MORE_STRINGS, MERGED},
    {"$defs", ANNOTATION},
    {"definitions", ANNOTATION},
    {"$schema", ANNOTATION},
    {"$id", ANNOTATION},
    {"$comment", ANNOTATION},
    {"title", ANNOTATION},
    {"description", ANNOTATION},
    {"default", ANNOTATION},
    {"example", ANNOTATION},
    {"examples", ANNOTATION},
    {"deprecated", ANNOTATION},
    {"readOnly", ANNOTATION},
    {"writeOnly", ANNOTATION},
    {"contentSchema", ANNOTATION},
    {"$anchor", ANNOTATION},
    {"$vocabulary", ANNOTATION},
    {"id", ANNOTATION},
    /* OpenAPI's */
    {"discriminator", ANNOTATION},
    {"externalDocs", ANNOTATION},
    {"xml", ANNOTATION},
    /* those of editors and forms */
    {"enumNames", ANNOTATION},
    {"enumDescriptions", ANNOTATION},
    {"markdownDescription", ANNOTATION},
    {"propertyOrdering", ANNOTATION},
};

static const struct keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (strcmp(keywords[i].name, name) == 0)
            return &keywords[i];
    return NULL;
}

static bool is_schema(const json_t *value) { return json_is_object(value) || json_is_boolean(value); }

static bool all_are(const json_t *list, bool test(const json_t *))
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!test(json_array_get(list, i)))
            return false;
    return json_is_array(list);
}

static bool is_object(const json_t *value) { return json_is_object(value); }

static bool is_string(const json_t *value) { return json_is_string(value); }

static bool all_members_are_schemas(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (!is_schema(value))
            return false;
    }
    return json_is_object(object);
}

/* What a keyword's value should be; NULL: it is. */
static const char *find_fault(enum keyword_kind kind, const json_t *value)
{
    switch (kind) {
    case SCHEMA: return is_schema(value) ? NULL : "a schema";
    case SCHEMAS:
        return json_array_size(value) && all_are(value, is_schema) ? NULL : "a list of schemas";
    case SCHEMA_MAP: return all_members_are_schemas(value) ? NULL : "an object of schemas";
    case ITEMS:
        return is_schema(value) || all_are(value, is_schema) ? NULL : "a schema or a list of schemas";
    case TYPES:
        return json_is_string(value) || (json_array_size(value) && all_are(value, is_string))
                   ? NULL
                   : "a type or a list of types";
    case VALUES: return json_array_size(value) ? NULL : "a list of values";
    case NUMBER: return json_is_number(value) ? NULL : "a number";
    case LIMIT:
        return json_is_number(value) || json_is_boolean(value) ? NULL : "a number, true or false";
    case NATURAL:
        return json_is_number(value) && json_number_value(value) >= 0 ? NULL : "a number of at least 0";
    case POSITIVE:
        return json_is_number(value) && json_number_value(value) > 0 ? NULL : "a number above 0";
    case BOOLEAN: return json_is_boolean(value) ? NULL : "true or false";
    case REFERENCE:
    case STRING: return json_is_string(value) ? NULL : "a string";
    case STRINGS: return all_are(value, is_string) ? NULL : "a list of strings";
    case MERGED: return json_is_array(value) && all_are(value, is_object) ? NULL : "a list of objects";
    case ANNOTATION:
    case VALUE: break;
    }
    return NULL;
}

static bool check_keyword(struct schema_job *job, const char *key, const json_t *value)
{
    const struct keyword *keyword = find_keyword(key);
    if (!keyword && strncmp(key, "x-", 2) == 0)
        return true;
    if (!keyword)
        return (schema_fail(job, "the keyword \"%.60s\" is not supported", key), false);
    const char *expected = find_fault(keyword->kind, value);
    if (expected)
        schema_fail(job, "\"%s\" is %s, %s is expected", key, json_type_name(value), expected);
    return !schema_failed(job);
}

bool schema_check(struct schema_job *job, const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (!check_keyword(job, key, value))
            return false;
    }
    return !schema_failed(job);
}

static unsigned type_named(struct schema_job *job, const char *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {{"null", SCHEMA_NULL},
                 {"boolean", SCHEMA_BOOLEAN},
                 {"object", SCHEMA_OBJECT},
                 {"array", SCHEMA_ARRAY},
                 {"string", SCHEMA_STRING},
                 {"integer", SCHEMA_INTEGER},
                 {"number", SCHEMA_INTEGER | SCHEMA_NUMBER}};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].types;
    schema_fail(job, "there is no type \"%.60s\"", name);
    return 0;
}

unsigned schema_types(struct schema_job *job, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned types = 0;
    if (!type)
        return SCHEMA_ANY;
    if (json_is_string(type))
        return type_named(job, json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_named(job, json_string_value(json_array_get(type, i)));
    return types;
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return SCHEMA_OBJECT;
    case JSON_ARRAY: return SCHEMA_ARRAY;
    case JSON_STRING: return SCHEMA_STRING;
    case JSON_INTEGER: return SCHEMA_INTEGER;
    case JSON_REAL: {
        const double x = json_real_value(value);
        return x >= -1e15 && x <= 1e15 && x == (double)(int64_t)x ? SCHEMA_INTEGER : SCHEMA_NUMBER;
    }
    case JSON_TRUE:
    case JSON_FALSE: return SCHEMA_BOOLEAN;
    case JSON_NULL: break;
    }
    return SCHEMA_NULL;
}

bool schema_is_any(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        const struct keyword *keyword = find_keyword(key);
        if (keyword && keyword->kind != ANNOTATION)
            return false;
    }
    return !json_is_false(schema);
}

uint32_t schema_count(struct schema_job *job, const json_t *schema, const char *key, uint32_t otherwise)
{
    const json_t *value = json_object_get(schema, key);
    const double count = json_number_value(value);
    if (!value)
        return otherwise;
    if (count != (double)(uint32_t)(count < UINT32_MAX ? count : 0)) {
        schema_fail(job, "\"%s\" is not a whole number below 2^32", key);
        return otherwise;
    }
    return (uint32_t)count;
}

struct number_bound schema_bound(const json_t *schema, bool upper)
{
    const json_t *inclusive = json_object_get(schema, upper ? "maximum" : "minimum");
    const json_t *exclusive = json_object_get(schema, upper ? "exclusiveMaximum" : "exclusiveMinimum");
    const double sign = upper ? -1 : 1;
    if (inclusive && exclusive &&
        sign * json_number_value(exclusive) < sign * json_number_value(inclusive))
        exclusive = NULL;
    return exclusive ? (struct number_bound){exclusive, true} : (struct number_bound){inclusive, false};
}

const json_t *schema_member(const json_t *schema, const char *name)
{
    const json_t *own = json_object_get(json_object_get(schema, "properties"), name);
    return own || json_object_get(schema, "patternProperties")
               ? own
               : json_object_get(schema, "additionalProperties");
}

expr_id schema_rule(struct schema_job *job, expr_id body, const char *name)
{
    struct grammar *g = job->json.grammar;
    if (g->failed || body == EXPR_NONE || g->expr[body].kind == EXPR_IS_RULE)
        return body;
    const uint32_t rule = grammar_add_rule(g, name, strlen(name));
    grammar_set_rule(g, rule, body);
    return expr_rule(g, rule);
}
