/* Parts of the compiler of JSON Schemas. Schemas are JSON values; merging makes new ones. */
#ifndef BMC_SCHEMA_PARTS_H
#define BMC_SCHEMA_PARTS_H

#include "text/grammar/json_number.h"
#include "text/grammar/regex.h"

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
    SCHEMA_DEPTH = 200,    /* of schemas in each other */
    SCHEMA_MERGES = 20000, /* schemas looked at, and made by merging */
};

/* A schema that $ref names, and its rule. */
struct schema_ref {
    const json_t *schema;
    char *pointer;
    uint32_t rule;
};

struct schema_job {
    struct json_grammar json;
    const json_t *root;
    struct buf path; /* JSON pointer of the schema being compiled */
    size_t depth;
    size_t merges;
    json_t *made; /* a list that owns schemas made by merging */
    struct schema_ref *ref;
    size_t n_refs, refs_cap;
    expr_id (*compile)(struct schema_job *job, const json_t *schema); /* the values that it allows */
};

/* Fails with the JSON pointer of the schema that is being compiled. */
expr_id schema_fail(struct schema_job *job, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds the JSON pointer and the keyword to the failure of an expression that knows neither. */
expr_id schema_name_place(struct schema_job *job, const char *keyword);
static inline bool schema_failed(const struct schema_job *job) { return job->json.grammar->failed; }

/* Enter and leave a part of a schema, for messages; returns what schema_leave() needs. */
size_t schema_enter(struct schema_job *job, const char *key, const char *name);
void schema_leave(struct schema_job *job, size_t mark);

/* ---- keywords: schema_keywords.c ---- */

/* Checks the keywords of an object and their values. */
bool schema_check(struct schema_job *job, const json_t *schema);

/* The types that a schema allows, by "type" alone. */
unsigned schema_types(struct schema_job *job, const json_t *schema);
unsigned schema_type_of(const json_t *value);

/* True if the schema has only annotations: any value. */
bool schema_is_any(const json_t *schema);

/* A whole number of at least 0, or `otherwise`. */
uint32_t schema_count(struct schema_job *job, const json_t *schema, const char *key,
                      uint32_t otherwise);

struct number_bound schema_bound(const json_t *schema, bool upper);

/* The schema of an object's member: its property, or that of others; NULL: any. */
const json_t *schema_member(const json_t *schema, const char *name);

/* An expression as a rule, so that several uses share it. */
expr_id schema_rule(struct schema_job *job, expr_id body, const char *name);

/* ---- merging: schema_merge.c ---- */

/* The schema that a $ref names, or NULL with the job failed. */
const json_t *schema_resolve(struct schema_job *job, const char *ref);

/* An equivalent schema without $ref and allOf at its outermost level; borrowed. */
const json_t *schema_expand(struct schema_job *job, const json_t *schema);

/* A schema for values that both allow; borrowed. */
const json_t *schema_merge(struct schema_job *job, const json_t *a, const json_t *b);

/* A copy without a key; borrowed. */
const json_t *schema_without(struct schema_job *job, const json_t *schema, const char *key);

/* ---- overlap: schema_overlap.c ---- */

/* Equal as JSON Schema has it: 1 and 1.0 are. */
bool schema_values_equal(const json_t *a, const json_t *b);

enum schema_fit { FIT_NO, FIT_YES, FIT_UNKNOWN };

/* Whether a value is allowed by an expanded schema. */
enum schema_fit schema_fits(struct schema_job *job, const json_t *value, const json_t *schema);

/* True if no text that is generated for `a` is allowed by `b`. */
bool schema_excludes(struct schema_job *job, const json_t *a, const json_t *b, size_t depth);

/* ---- formats: schema_format.c ---- */

/* The regular expression of a format, or NULL. */
const char *schema_format_pattern(const char *format);
#define SCHEMA_FORMATS "date, time, date-time, uuid, email and ipv4"

#endif
