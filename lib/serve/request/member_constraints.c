/* Members of requests that constrain the generated text. */
#include <string.h>

#include "base/text_util.h"
#include "serve/request/members.h"

/* Sets the request's constraint; a request has at most one. */
static int set_constraint(struct request *r, const struct given_member *given,
                          enum constraint_kind kind, const json_t *value, struct err *err)
{
    if (r->constraint_given)
        return err_set(err,
                       "\"%s\": json_schema, grammar, regex, choice and response_format exclude each "
                       "other",
                       given->name);
    r->constraint_given = true;
    r->constraint = kind;
    if (kind == CONSTRAINT_GRAMMAR || kind == CONSTRAINT_REGEX)
        return buf_add(&r->constraint_text, json_string_value(value), json_string_length(value), err);
    return value ? json_append(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17),
                               &r->constraint_text, err)
                 : 0;
}

int member_set_schema(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_object(given->value) && !json_is_boolean(given->value))
        return member_refuse(given, err);
    return set_constraint(r, given, CONSTRAINT_JSON_SCHEMA, given->value, err);
}

int member_set_pattern(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_string(given->value))
        return member_refuse(given, err);
    return set_constraint(r, given,
                          given->member->kind == REGEX ? CONSTRAINT_REGEX : CONSTRAINT_GRAMMAR,
                          given->value, err);
}

int member_set_choices(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_array_size(given->value))
        return member_refuse(given, err);
    for (size_t i = 0; i < json_array_size(given->value); i++)
        if (!json_is_string(json_array_get(given->value, i)))
            return err_set(err, "\"%s\" holds %s, strings are expected", given->name,
                           json_type_name(json_array_get(given->value, i)));
    return set_constraint(r, given, CONSTRAINT_CHOICE, given->value, err);
}

/* The types of response_format: OpenAI's, where json_object may have a schema, as with llama.cpp. */
static const struct format {
    const char *type, *members;
    enum constraint_kind kind;
} formats[] = {
    {"text", "type", CONSTRAINT_NONE},
    {"json_object", "type schema", CONSTRAINT_JSON_OBJECT},
    {"json_schema", "type json_schema", CONSTRAINT_JSON_SCHEMA},
};

int member_set_format(struct request *r, const struct given_member *given, struct err *err)
{
    const char *type = json_string_value(json_object_get(given->value, "type"));
    const json_t *wrapped = json_object_get(given->value, "json_schema"),
                 *schema = json_object_get(wrapped ? wrapped : given->value, "schema");
    const struct format *f = formats;
    if (!type)
        return member_refuse(given, err);
    while (f < formats + ARRAY_LEN(formats) && strcmp(type, f->type) != 0)
        f++;
    if (f == formats + ARRAY_LEN(formats))
        return err_set(err, "\"%s\": the type \"%s\" is none of text, json_object and json_schema",
                       given->name, excerpt_of(type, strlen(type)).text);
    if (!r->lenient &&
        (check_known("\"response_format\"", given->value, f->members, err) < 0 ||
         check_known("\"json_schema\"", wrapped, "name description schema strict", err) < 0))
        return -1;
    const bool any =
        !schema || json_is_null(schema) || (json_is_object(schema) && !json_object_size(schema));
    if (f->kind == CONSTRAINT_NONE || (f->kind == CONSTRAINT_JSON_OBJECT && any))
        return set_constraint(r, given, f->kind, NULL, err);
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return err_set(err, "\"%s\": a schema is expected at %s, found %s", given->name,
                       f->kind == CONSTRAINT_JSON_SCHEMA ? "json_schema.schema" : "schema",
                       json_type_name(schema));
    return set_constraint(r, given, CONSTRAINT_JSON_SCHEMA, schema, err);
}
