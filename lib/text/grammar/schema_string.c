/* Strings of a JSON Schema: what pattern, format and limits of the length say together. */
#include "text/grammar/schema_string.h"

#include <string.h>

bool schema_string_term(const json_t *schema, size_t i, struct string_rule *rule)
{
    static const char *const keys[] = {"pattern", "format", "contentEncoding"};
    const json_t *more = json_object_get(schema, SCHEMA_MORE_STRINGS);
    const json_t *of = i < ARRAY_LEN(keys) ? schema : json_array_get(more, i - ARRAY_LEN(keys));
    *rule = (struct string_rule){NULL, NULL};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        const char *value = json_string_value(json_object_get(of, keys[k]));
        if (!value || (of == schema && k != i))
            continue;
        if (k == 0)
            rule->pattern = value;
        else if (k == 1 || strcmp(value, "base64") == 0 || strcmp(value, "base64url") == 0)
            rule->format = value;
    }
    return of != NULL;
}

/* Sets share the work that one schema may take. */
static void begin_set(const struct schema_job *job, struct string_set *set)
{
    string_set_begin(set);
    set->work = job->string_work;
}

static void end_set(struct schema_job *job, struct string_set *set)
{
    job->string_work = size_max(job->string_work, set->work);
    string_set_release(set);
}

/* Adds what the schema says about strings; to check them if `read`, or to write them. */
static void add_terms(struct schema_job *job, struct string_set *set, const json_t *schema, bool read)
{
    struct string_rule rule;
    set->min = schema_count(job, schema, "minLength", 0);
    set->max = schema_count(job, schema, "maxLength", EXPR_MANY);
    for (size_t i = 0; schema_string_term(schema, i, &rule); i++) {
        const struct string_format *format = rule.format ? schema_string_format(rule.format) : NULL;
        if (rule.pattern)
            string_set_add(set, rule.pattern, REGEX_SEARCH, false);
        if (rule.format && !format && !read && !schema_integer_format(rule.format))
            schema_note(job, "the format \"%.60s\" is not enforced", rule.format);
        const char *regex = !format ? NULL : read && format->read ? format->read : format->write;
        if (!regex || !*regex)
            continue;
        string_set_add(set, regex, REGEX_WHOLE, false);
        if (read && format->most && format->most < set->max)
            set->max = format->most;
    }
}

/* Takes over the failure of a set, if any, with the place. */
static bool take_failure(struct schema_job *job, const struct string_set *set, const char *keyword)
{
    struct grammar *g = job->json.grammar;
    if (set->expr.failed && !g->failed) {
        g->failed = true;
        g->why = set->expr.why;
        schema_name_place(job, keyword);
    }
    return g->failed;
}

/* The JSON strings of a set. */
static expr_id write_set(struct schema_job *job, struct string_set *set)
{
    struct grammar *g = job->json.grammar;
    const expr_id quote = expr_text(g, "\"");
    if (take_failure(job, set, "\"pattern\": ") || set->min > set->max)
        return EXPR_NONE;
    if (!set->n_terms)
        return json_text_string(&job->json, set->min, set->max);
    const expr_id content = string_set_json(set, &job->json);
    if (g->failed)
        schema_name_place(job, "");
    return take_failure(job, set, "") ? EXPR_NONE : EXPR_SEQ(g, quote, content, quote);
}

expr_id schema_string(struct schema_job *job, const json_t *schema)
{
    struct string_set set;
    begin_set(job, &set);
    add_terms(job, &set, schema, false);
    const expr_id id = write_set(job, &set);
    if (json_object_get(schema, "contentMediaType"))
        schema_note(job, "\"contentMediaType\" is not enforced");
    end_set(job, &set);
    return id;
}

expr_id schema_name(struct schema_job *job, const struct schema_names *names)
{
    const char *pattern;
    json_t *value;
    struct string_set set;
    begin_set(job, &set);
    if (json_is_object(names->names))
        add_terms(job, &set, names->names, false);
    if (names->pattern)
        string_set_add(&set, names->pattern, REGEX_SEARCH, false);
    json_object_foreach((json_t *)(uintptr_t)names->patterns, pattern, value)
    {
        if (pattern != names->pattern)
            string_set_add(&set, pattern, REGEX_SEARCH, true);
    }
    string_set_exclude(&set, names->others, names->n_others);
    const expr_id id = write_set(job, &set);
    end_set(job, &set);
    return id;
}

bool schema_name_matches(struct schema_job *job, const char *pattern, const char *name)
{
    struct string_set set;
    begin_set(job, &set);
    string_set_add(&set, pattern, REGEX_SEARCH, false);
    const bool matches = string_set_has(&set, name, strlen(name));
    (void)take_failure(job, &set, "\"pattern\": ");
    end_set(job, &set);
    return matches;
}

bool schema_string_fits(struct schema_job *job, const json_t *schema, const char *text, size_t len)
{
    if (job->strings_of != schema) {
        end_set(job, &job->strings);
        begin_set(job, &job->strings);
        add_terms(job, &job->strings, schema, true);
        job->strings_of = schema;
    }
    const struct string_set *set = &job->strings;
    if (!set->n_terms && !set->min && set->max == EXPR_MANY)
        return true;
    const bool fits = string_set_has(&job->strings, text, len);
    return !take_failure(job, &job->strings, "\"pattern\": ") && fits;
}
