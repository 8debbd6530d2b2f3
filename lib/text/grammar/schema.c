/* What JSON Schemas say: their keywords, their values, and merging them. */
#include "text/grammar/schema.h"

#include "base/number.h"
#include "base/text_util.h"

/* ---- keywords of JSON Schemas: which there are, and what values they have ---- */

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
static bool is_boolean(const json_t *value) { return json_is_boolean(value); }
static bool is_number(const json_t *value) { return json_is_number(value); }
static bool is_values(const json_t *value) { return json_array_size(value) > 0; }
static bool is_strings(const json_t *value) { return all_are(value, is_string); }
static bool is_objects(const json_t *value) { return all_are(value, is_object); }
static bool is_schemas(const json_t *value) { return is_values(value) && all_are(value, is_schema); }
static bool is_items(const json_t *value) { return is_schema(value) || all_are(value, is_schema); }
static bool is_limit(const json_t *value) { return is_number(value) || is_boolean(value); }

static bool is_types(const json_t *value)
{
    return is_string(value) || (is_values(value) && is_strings(value));
}

static bool is_natural(const json_t *value)
{
    return is_number(value) && json_number_value(value) >= 0;
}

static bool is_positive(const json_t *value)
{
    return is_number(value) && json_number_value(value) > 0;
}

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

/* What keywords' values are. */
static const struct keyword_kind {
    const char *names; /* separated by '|' */
    bool (*fits)(const json_t *value);
    const char *expected;
} keywords[] = {
    {"type", is_types, "a type or a list of types"},
    {"enum", is_values, "a list of values"},
    {"properties|patternProperties", all_members_are_schemas, "an object of schemas"},
    {"additionalProperties|propertyNames|additionalItems", is_schema, "a schema"},
    {"items", is_items, "a schema or a list of schemas"}, /* a list up to draft 7 */
    {"prefixItems|anyOf|oneOf|allOf", is_schemas, "a list of schemas"},
    {"required", is_strings, "a list of strings"},
    {"minItems|maxItems|minLength|maxLength|minProperties|maxProperties", is_natural,
     "a number of at least 0"},
    {"minimum|maximum", is_number, "a number"},
    {"exclusiveMinimum|exclusiveMaximum", is_limit, "a number, true or false"}, /* draft 4 */
    {"multipleOf", is_positive, "a number above 0"},
    {"uniqueItems|nullable", is_boolean, "true or false"},
    {"pattern|format|$ref|contentEncoding|contentMediaType", is_string, "a string"},
    {SCHEMA_MORE_STRINGS, is_objects, "a list of objects"}, /* made by merging */
    {"const", NULL, NULL},
};

/* Keywords that say nothing about which values are allowed: JSON Schema's, OpenAPI's, and those of editors and
 * forms. */
static const char annotations[] =
    "$defs|definitions|$schema|$id|$comment|title|description|default|example|examples|deprecated|"
    "readOnly|writeOnly|contentSchema|$anchor|$vocabulary|id|discriminator|externalDocs|xml|enumNames|"
    "enumDescriptions|markdownDescription|propertyOrdering";

static const struct keyword_kind *find_keyword(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (text_choice(keywords[i].names, name) != SIZE_MAX)
            return &keywords[i];
    return NULL;
}

static bool check_keyword(struct schema_job *job, const char *key, const json_t *value)
{
    const struct keyword_kind *keyword = find_keyword(key);
    if (!keyword && (strncmp(key, "x-", 2) == 0 || text_choice(annotations, key) != SIZE_MAX))
        return true;
    if (!keyword)
        schema_fail(job, "the keyword \"%.60s\" is not supported", key);
    else if (keyword->fits && !keyword->fits(value))
        schema_fail(job, "\"%s\" is %s, %s is expected", key, json_type_name(value), keyword->expected);
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

static const struct {
    const char *name;
    unsigned types;
} type_names[] = {{"null", SCHEMA_NULL},
                  {"boolean", SCHEMA_BOOLEAN},
                  {"object", SCHEMA_OBJECT},
                  {"array", SCHEMA_ARRAY},
                  {"string", SCHEMA_STRING},
                  {"integer", SCHEMA_INTEGER},
                  {"number", SCHEMA_INTEGER | SCHEMA_NUMBER}};

static unsigned type_named(struct schema_job *job, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(type_names); i++)
        if (strcmp(type_names[i].name, name) == 0)
            return type_names[i].types;
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
        if (find_keyword(key))
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

/* ---- values of JSON Schemas: which are equal, and sets of them ---- */

bool schema_values_equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

/* A value as text, the same for equal ones; numbers are those of doubles. NULL on failure. */
static char *key_of(struct schema_job *job, const json_t *value)
{
    char number[32], *key;
    snprintf(number, sizeof number, "%.17g", json_number_value(value));
    key = json_is_number(value) ? strdup(number)
                                : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    if (!key)
        grammar_no_memory(job->json.grammar, "a value");
    return key;
}

void schema_set_add(struct schema_job *job, json_t *set, const json_t *value)
{
    AUTO(free_auto) char *key = key_of(job, value);
    if (!key || json_object_set_new(set, key, json_true()) < 0)
        grammar_no_memory(job->json.grammar, "a list of values");
}

json_t *schema_value_set(struct schema_job *job, const json_t *list)
{
    json_t *set = json_object();
    for (size_t i = 0; i < json_array_size(list) && !schema_failed(job); i++)
        schema_set_add(job, set, json_array_get(list, i));
    return set;
}

bool schema_set_has(struct schema_job *job, const json_t *set, const json_t *value)
{
    AUTO(free_auto) char *key = key_of(job, value);
    const bool has = key && json_object_get(set, key);
    return has;
}

/* ---- merging JSON Schemas: a schema for the values that several allow ---- */

json_t *schema_keep(struct schema_job *job, json_t *value)
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
static void put_member(struct schema_job *job, json_t *schema, const char *key, const json_t *value)
{
    if (value && json_object_set(schema, key, (json_t *)(uintptr_t)value) < 0)
        grammar_no_memory(job->json.grammar, "merged schemas");
}

static json_t *copy_of(struct schema_job *job, const json_t *schema)
{
    return schema_keep(job, json_copy((json_t *)(uintptr_t)schema));
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
    return schema_keep(job, json_pack("{s:[O,O]}", "allOf", a, b));
}

static void merge_types(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const unsigned types = schema_types(job, a) & schema_types(job, b);
    json_t *list = json_array();
    for (size_t i = 0; i < ARRAY_LEN(type_names); i++)
        if ((types & type_names[i].types) == type_names[i].types)
            json_array_append_new(list, json_string(type_names[i].name));
    if (json_object_set_new(to, "type", list) < 0)
        grammar_no_memory(job->json.grammar, "merged schemas");
}

/* What becomes of a keyword that both schemas have. */
typedef const json_t *merge_fn(struct schema_job *job, const json_t *a, const json_t *b);

static const json_t *highest(struct schema_job *job, const json_t *a, const json_t *b)
{
    (void)job;
    return json_number_value(a) > json_number_value(b) ? a : b;
}

static const json_t *lowest(struct schema_job *job, const json_t *a, const json_t *b)
{
    (void)job;
    return json_number_value(a) > json_number_value(b) ? b : a;
}

static const json_t *either(struct schema_job *job, const json_t *a, const json_t *b)
{
    (void)job;
    return json_is_true(b) ? b : a;
}

static const json_t *all_names(struct schema_job *job, const json_t *a, const json_t *b)
{
    json_t *list = schema_keep(job, json_copy((json_t *)(uintptr_t)a));
    if (list)
        json_array_extend(list, (json_t *)(uintptr_t)b);
    return list;
}

/* Alternatives of both: all pairs. */
static const json_t *all_pairs(struct schema_job *job, const json_t *a, const json_t *b)
{
    json_t *list = schema_keep(job, json_array());
    for (size_t i = 0; i < json_array_size(a) && list; i++)
        for (size_t k = 0; k < json_array_size(b) && !schema_failed(job); k++)
            json_array_append(list, (json_t *)(uintptr_t)schema_both(job, json_array_get(a, i),
                                                                     json_array_get(b, k)));
    return list;
}

/* Multiples of both: of their least common multiple. */
static const json_t *common_multiple(struct schema_job *job, const json_t *a, const json_t *b)
{
    json_t *both = json_equal(a, b) ? json_incref((json_t *)(uintptr_t)a) : json_common_multiple(a, b);
    if (!both)
        schema_fail(job, "two different values of \"multipleOf\" together are not supported");
    return both ? schema_keep(job, both) : NULL;
}

static const struct {
    const char *keys;
    merge_fn *merge;
} merges[] = {
    {"minimum|exclusiveMinimum|minLength|minItems|minProperties", highest},
    {"maximum|exclusiveMaximum|maxLength|maxItems|maxProperties", lowest},
    {"uniqueItems", either},
    {"required", all_names},
    {"anyOf|oneOf", all_pairs},
    {"multipleOf", common_multiple},
    {"propertyNames|additionalProperties|items", schema_both},
};

/* Merges the keywords that need nothing but their values. */
static void merge_keywords(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        const json_t *own = json_object_get(a, key);
        for (size_t i = 0; i < ARRAY_LEN(merges) && own && !schema_failed(job); i++)
            if (text_choice(merges[i].keys, key) != SIZE_MAX)
                put_member(job, to, key, merges[i].merge(job, own, value));
    }
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
    json_t *all = schema_keep(job, json_object());
    for (size_t i = 0; i < 2 && all; i++) {
        const char *name;
        json_t *schema;
        json_object_foreach(json_object_get(both[i], "properties"), name, schema)
        {
            const json_t *merged = merged_member(job, schema_member(a, name), schema_member(b, name));
            if (schema_failed(job))
                return;
            put_member(job, all, name, merged);
            job->merges++;
        }
    }
    if (json_object_get(a, "properties") || json_object_get(b, "properties"))
        put_member(job, to, "properties", all);
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
    json_t *prefix = schema_keep(job, json_array());
    for (size_t i = 0; i < n && prefix; i++) {
        const json_t *merged = merged_member(job, item_at(a, i), item_at(b, i));
        if (schema_failed(job))
            return;
        json_array_append(prefix, merged ? (json_t *)(uintptr_t)merged : json_true());
    }
    if (n)
        put_member(job, to, "prefixItems", prefix);
}

/* Values of both lists; `const` is a list of one. */
static void merge_values(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    const json_t *const both[] = {a, b};
    json_t *left = NULL;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) {
            const json_t *values = json_object_get(both[i], k ? "const" : "enum");
            json_t *rest = values ? schema_keep(job, json_array()) : NULL;
            json_t *known = left ? schema_value_set(job, left) : NULL;
            if (k && values)
                values = schema_keep(job, json_pack("[O]", values));
            for (size_t v = 0; v < json_array_size(values) && rest; v++)
                if (!left || schema_set_has(job, known, json_array_get(values, v)))
                    json_array_append(rest, json_array_get(values, v));
            json_decref(known);
            left = rest ? rest : left;
        }
    if (!left)
        return;
    json_object_del(to, "const");
    put_member(job, to, "enum", left);
}

/* Patterns and formats that `to`, which has those of a, does not have yet. */
static void merge_strings(struct schema_job *job, json_t *to, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"pattern", "format", "contentEncoding"};
    const json_t *more = json_object_get(b, SCHEMA_MORE_STRINGS);
    json_t *list = schema_keep(job, json_array());
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
        put_member(job, to, SCHEMA_MORE_STRINGS, list);
}

const json_t *schema_merge(struct schema_job *job, const json_t *a, const json_t *b)
{
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
    merge_keywords(job, to, a, b);
    merge_properties(job, to, a, b);
    merge_items(job, to, a, b);
    merge_values(job, to, a, b);
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
            put_member(job, to, limits[i][0], json_object_get(schema, limits[i][1]));
            json_object_del(to, limits[i][1]);
        }
    }
    if (json_is_array(items) && to) {
        json_object_del(to, "items");
        if (json_array_size(items))
            put_member(job, to, "prefixItems", items);
        put_member(job, to, "items", json_object_get(schema, "additionalItems"));
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
