/* Values of JSON Schemas: which are equal, and sets of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/schema_parts.h"

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
    char *key = key_of(job, value);
    if (!key || json_object_set_new(set, key, json_true()) < 0)
        grammar_no_memory(job->json.grammar, "a list of values");
    free(key);
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
    char *key = key_of(job, value);
    const bool has = key && json_object_get(set, key);
    free(key);
    return has;
}
