/* Parts of the compiler of JSON Schemas. Schemas are JSON values; merging makes new ones. */
#pragma once

#include "text/grammar/json_text.h"
#include "text/grammar/string_set.h"

enum schema_type {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_OBJECT = 4,
    SCHEMA_ARRAY = 8,
    SCHEMA_STRING = 16,
    SCHEMA_INTEGER = 32,
    SCHEMA_NUMBER = 64, /* that are not integers */
    SCHEMA_ANY = 127
};

enum {
    SCHEMA_DEPTH = 200,      /* of schemas in each other */
    SCHEMA_MERGES = 1 << 20, /* members of schemas made by merging; each schema has MERGE_COST more */
    MERGE_COST = 8,
    SCHEMA_COMPARED = 1 << 20, /* pairs of schemas and names that are compared */
};

/* A schema that $ref names, and its rule. */
struct schema_ref {
    const json_t *schema;
    const char *pointer; /* of a schema that lives as long as the job */
    uint32_t rule;
};

struct schema_job {
    struct json_grammar json;
    const json_t *root;
    struct buf path; /* JSON pointer of the schema being compiled */
    size_t depth;
    size_t merges, compared,
        string_work; /* work done so far: by merging, by comparing, by string sets */
    json_t *made;    /* a list that owns schemas made by merging */
    struct schema_ref *ref;
    size_t n_refs, refs_cap;
    json_t *ref_index;        /* their indices, by pointer */
    const json_t *strings_of; /* the schema whose strings are in `strings`; NULL: none */
    struct string_set strings;
    const json_t *values_of; /* the list whose values are in `values`; NULL: none */
    json_t *values;
    struct buf nothing; /* where the first schema is that allows no value; empty: nowhere */
    expr_id (*compile)(struct schema_job *job, const json_t *schema); /* the values that it allows */
};

/* Fails with the JSON pointer of the schema that is being compiled. */
expr_id schema_fail(struct schema_job *job, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds the JSON pointer and the keyword to the failure of an expression that knows neither. */
expr_id schema_name_place(struct schema_job *job, const char *keyword);
static inline bool schema_failed(const struct schema_job *job) { return job->json.grammar->failed; }

/* Keeps a note with the place, unless there is one. */
void schema_note(struct schema_job *job, const char *format, ...) PRINTF_LIKE(2, 3);

/* Enter and leave a part of a schema, for messages; returns what schema_leave() needs. */
size_t schema_enter(struct schema_job *job, const char *key, const char *name);
size_t schema_enter_item(struct schema_job *job, const char *key, size_t index);
void schema_leave(struct schema_job *job, size_t mark);

/* ---- keywords ---- */

/* Checks the keywords of an object and their values. */
bool schema_check(struct schema_job *job, const json_t *schema);

/* The types that a schema allows, by "type" alone. */
unsigned schema_types(struct schema_job *job, const json_t *schema);

/* True if the schema has only annotations: any value. */
bool schema_is_any(const json_t *schema);

/* A whole number of at least 0, or `otherwise`. */
uint32_t schema_count(struct schema_job *job, const json_t *schema, const char *key,
                      uint32_t otherwise);

struct number_bound schema_bound(const json_t *schema, bool upper);

/* ---- values ---- */
void schema_set_add(struct schema_job *job, json_t *set, const json_t *value);
bool schema_set_has(struct schema_job *job, const json_t *set, const json_t *value);

/* A set of values, in which equal ones are found; released with json_decref(). */
json_t *schema_value_set(struct schema_job *job, const json_t *list);

/* Equal as JSON Schema has it: 1 and 1.0 are. */
bool schema_values_equal(const json_t *a, const json_t *b);

unsigned schema_type_of(const json_t *value);

/* The schema of an object's member: its property, or that of others; NULL: any. */
const json_t *schema_member(const json_t *schema, const char *name);

/* ---- merging ---- */

/* The key under which merged schemas keep further patterns and formats. */
#define SCHEMA_MORE_STRINGS "\x01strings"

/* The schema that a $ref names, or NULL with the job failed. */
const json_t *schema_resolve(struct schema_job *job, const char *ref);

/* An equivalent schema without $ref and allOf at its outermost level; borrowed. */
const json_t *schema_expand(struct schema_job *job, const json_t *schema);

/* A schema for values that both allow; borrowed. */
const json_t *schema_merge(struct schema_job *job, const json_t *a, const json_t *b);

/* Keeps a new value until the job ends, and counts it; borrowed. NULL on failure. */
json_t *schema_keep(struct schema_job *job, json_t *value);

/* The schema of both, not merged yet; borrowed. */
const json_t *schema_both(struct schema_job *job, const json_t *a, const json_t *b);

/* A copy without a key; borrowed. */
const json_t *schema_without(struct schema_job *job, const json_t *schema, const char *key);

/* ---- strings: schema_string.c ---- */

/* The i-th pattern or format of a schema; both NULL: none there. False behind the last one. */
struct string_rule {
    const char *pattern, *format;
};

bool schema_string_term(const json_t *schema, size_t i, struct string_rule *rule);

/* The JSON strings that a schema allows. */
expr_id schema_string(struct schema_job *job, const json_t *schema);

/* True if a string, UTF-8, has the pattern, format and length that a schema asks for. */
bool schema_string_fits(struct schema_job *job, const json_t *schema, const char *text, size_t len);

/* Names of an object's members: those that `names` allows, that match `pattern`, if any, and none of the other
 * patterns, which are the names of a JSON object's members, and that are not among others[n_others]. */
struct schema_names {
    const json_t *names;
    const char *pattern;
    const json_t *patterns;
    const char *const *others;
    size_t n_others;
};

expr_id schema_name(struct schema_job *job, const struct schema_names *names);
bool schema_name_matches(struct schema_job *job, const char *pattern, const char *name);

/* ---- formats ---- */

struct string_format {
    const char *name;
    const char *write; /* the strings to generate; NULL: any */
    const char *read;  /* those allowed; NULL: the same; "": any */
    uint32_t most;     /* characters of those allowed; 0: no limit */
};

struct integer_format {
    const char *name;
    json_int_t min, max;
};

const struct integer_format *schema_integer_format(const char *name);
