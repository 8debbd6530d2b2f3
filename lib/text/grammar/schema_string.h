/* Strings of a JSON Schema, and formats of values. */
#ifndef BMC_SCHEMA_STRING_H
#define BMC_SCHEMA_STRING_H

#include "text/grammar/schema_parts.h"
#include "text/grammar/string_set.h"

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

#endif
