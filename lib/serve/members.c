/* Values of members of requests: numbers, texts, lists, constraints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"
#include "serve/members.h"

void member_describe(const struct member *member, char *text, size_t size)
{
    static const char *const plain[] = {
        [ANY] = "any value",
        [PROMPT] = "a string or a list of token ids",
        [IDS] = "a list of token ids",
        [TURNS] = "a list of objects with role and content",
        [OBJECTS] = "a list of objects",
        [OBJECT] = "an object",
        [BOOL] = "true or false",
        [FLAG] = "true or false",
        [SEED] = "a whole number from -1 to 2^64-1",
        [TEXTS] = "a string or a list of strings",
        [BREAKERS] = "a list of strings",
        [BIASES] = "an object of token ids and numbers",
        [SCHEMA] = "a JSON Schema",
        [GRAMMAR] = "a string",
        [REGEX] = "a string",
        [CHOICES] = "a list of strings",
        [FORMAT] = "an object with type",
        [ORDER] = "a list of names of samplers",
        [ADAPTERS] = "a list of adapters",
        [LOGPROBS] = "true or false, or a whole number from 0 to 1000",
    };
    const char *number = member->kind == REAL ? "a number" : "a whole number";
    if (member->kind != COUNT && member->kind != REAL)
        snprintf(text, size, "%s", plain[member->kind]);
    else if (member->max == MEMBER_MANY)
        snprintf(text, size, "%s, %g or more", number, member->min);
    else
        snprintf(text, size, "%s from %g to %g", number, member->min, member->max);
}

int member_refuse(const struct given_member *given, struct err *err)
{
    char expected[80], found[40];
    member_describe(given->member, expected, sizeof expected);
    if (json_is_number(given->value))
        number_text(json_number_value(given->value), found);
    else
        snprintf(found, sizeof found, "%s", json_type_name(given->value));
    return err_set(err, "\"%s\" is %s, %s is expected", given->name, found, expected);
}

int member_set_value(struct request *r, const struct given_member *given, struct err *err)
{
    if ((given->member->kind == OBJECT && !json_is_object(given->value)) ||
        (given->member->kind == BOOL && !json_is_boolean(given->value)))
        return member_refuse(given, err);
    *(const json_t **)((char *)r + given->member->at) = given->value;
    return 0;
}

int member_check_ids(const struct given_member *given, struct err *err)
{
    const json_t *ids = given->value;
    if (!json_is_array(ids))
        return member_refuse(given, err);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return err_set(err, "\"%s\": entry %zu is not a token id", given->name, i);
    }
    return 0;
}

/* A prompt as a text or as ids; OpenAI's lists of prompts have one here. */
int member_set_prompt(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *first = json_array_get(given->value, 0);
    const bool wrapped = json_is_string(first) || json_is_array(first);
    if (wrapped && json_array_size(given->value) > 1)
        return err_set(err, "\"%s\" holds %zu prompts, one is expected: write a line for each",
                       given->name, json_array_size(given->value));
    struct given_member one = *given;
    one.value = wrapped ? first : given->value;
    r->n_prompts++;
    if (json_is_string(one.value)) {
        r->prompt.text = json_string_value(one.value);
        r->prompt.len = json_string_length(one.value);
        return 0;
    }
    r->prompt_ids = one.value;
    return member_check_ids(&one, err);
}

int member_set_ids(struct request *r, const struct given_member *given, struct err *err)
{
    r->n_prompts++;
    return member_check_ids(given, err) < 0 ? -1 : member_set_value(r, given, err);
}

/* A list of objects, whose members the chat template reads. */
int member_set_objects(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *list = given->value, *one;
    size_t i;
    if (!json_is_array(list))
        return member_refuse(given, err);
    json_array_foreach(list, i, one)
    {
        if (!json_is_object(one))
            return err_set(err, "\"%s\": entry %zu is %s, an object is expected", given->name, i,
                           json_type_name(one));
    }
    r->n_prompts += given->member->kind == TURNS;
    return member_set_value(r, given, err);
}

static bool in_range(const struct member *member, double x)
{
    return x >= member->min && x <= member->max;
}

/* Reads a whole number; accepts 2.0, since some languages write integers as reals. */
static bool read_whole(const json_t *value, json_int_t *whole)
{
    /* doubles beyond 2^53 are inexact */
    const double most = 9007199254740992, x = json_real_value(value);
    *whole = json_is_real(value) && fabs(x) <= most ? (json_int_t)x : json_integer_value(value);
    return json_is_integer(value) || (json_is_real(value) && fabs(x) <= most && floor(x) == x);
}

/* Stores an integer field of the request; -1, where allowed, becomes SIZE_MAX: no limit. */
int member_set_whole(struct request *r, const struct given_member *given, struct err *err)
{
    char *at = (char *)r + given->member->at;
    json_int_t whole;
    if (!read_whole(given->value, &whole) || !in_range(given->member, (double)whole))
        return member_refuse(given, err);
    *(size_t *)at = (size_t)whole;
    return 0;
}

/* A seed; for -1 one is drawn. */
int member_set_seed(struct request *r, const struct given_member *given, struct err *err)
{
    json_int_t whole;
    if (!read_whole(given->value, &whole) || (whole < -1 && whole != REQUEST_BIG_SEED))
        return member_refuse(given, err);
    r->gen.seed = whole == REQUEST_BIG_SEED ? r->big_seed : (uint64_t)whole;
    r->gen.seed_drawn = whole == -1;
    if (whole == REQUEST_BIG_SEED && !r->big_seed)
        return member_refuse(given, err);
    return whole == -1 ? seed_draw(&r->gen.seed, err) : 0;
}

int member_set_real(struct request *r, const struct given_member *given, struct err *err)
{
    const double x = json_number_value(given->value);
    if (!json_is_number(given->value) || !in_range(given->member, x))
        return member_refuse(given, err);
    *(double *)((char *)r + given->member->at) = x;
    return 0;
}

int member_set_flag(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_boolean(given->value))
        return member_refuse(given, err);
    *(bool *)((char *)r + given->member->at) = json_is_true(given->value);
    return 0;
}

/* Sets an array of borrowed strings, in owned storage. */
static int read_texts(const struct given_member *given, char ***out, size_t *n, struct err *err)
{
    const json_t *list = given->value;
    *n = json_is_array(list) ? json_array_size(list) : 1;
    if (*n > MEMBER_MOST_TEXTS)
        return err_set(err, "\"%s\" has %zu strings: at most %d are possible", given->name, *n,
                       MEMBER_MOST_TEXTS);
    char **to = *out = mem_zalloc(*n + 1, sizeof *to);
    if (!to)
        return err_no_memory(err, "%zu strings", *n);
    for (size_t i = 0; i < *n; i++) {
        const json_t *text = json_is_array(list) ? json_array_get(list, i) : list;
        if (!json_is_string(text))
            return err_set(err, "\"%s\" holds %s, strings are expected", given->name,
                           json_type_name(text));
        if (!json_string_length(text) || strlen(json_string_value(text)) != json_string_length(text))
            return err_set(err, "\"%s\": a string is empty or holds a zero character", given->name);
        to[i] = (char *)(uintptr_t)json_string_value(text);
    }
    return 0;
}

/* Replaces the run's default stop strings by the request's. */
int member_set_stop(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_array(given->value) && !json_is_string(given->value))
        return member_refuse(given, err);
    if (read_texts(given, &r->stop, &r->gen.stop.n, err) < 0)
        return -1;
    r->gen.stop.text = r->stop;
    return 0;
}

int member_set_breakers(struct request *r, const struct given_member *given, struct err *err)
{
    r->breakers_given = true;
    free(r->breaker); /* of a snapshot */
    r->breaker = NULL;
    return json_is_array(given->value) ? read_texts(given, &r->breaker, &r->n_breakers, err)
                                       : member_refuse(given, err);
}

/* Reads a logit bias: a number, or false to forbid the token. */
static int read_bias(const char *id_text, const json_t *value, struct logit_bias *bias, struct err *err)
{
    size_t id;
    const double number = json_is_false(value) ? LOGIT_BIAS_NEVER : json_number_value(value);
    if (!parse_size(id_text, &id) || id > UINT32_MAX)
        return err_set(err, "\"logit_bias\": \"%s\" is not a token id",
                       excerpt_of(id_text, strlen(id_text)).text);
    if (!json_is_false(value) && !(json_is_number(value) && fabs(number) <= LOGIT_BIAS_MOST))
        return err_set(
            err,
            "\"logit_bias\": for token %zu a number from -%g to %g is expected, or false to forbid it",
            id, LOGIT_BIAS_MOST, LOGIT_BIAS_MOST);
    *bias = (struct logit_bias){(uint32_t)id, (float)number};
    return 0;
}

/* Replaces the run's default logit biases by the request's. */
int member_set_biases(struct request *r, const struct given_member *given, struct err *err)
{
    const char *id;
    json_t *value, *object = (json_t *)(uintptr_t)given->value;
    size_t n = 0;
    if (!json_is_object(object))
        return member_refuse(given, err);
    r->bias = mem_alloc(json_object_size(object) + 1, sizeof *r->bias);
    if (!r->bias)
        return err_no_memory(err, "%zu biases", json_object_size(object));
    json_object_foreach(object, id, value)
    {
        if (read_bias(id, value, &r->bias[n++], err) < 0)
            return -1;
    }
    r->sampling.bias = r->bias;
    r->sampling.n_biases = n;
    return 0;
}

int member_set_order(struct request *r, const struct given_member *given, struct err *err)
{
    struct buf text = {0};
    int rc = json_array_size(given->value) ? 0 : member_refuse(given, err);
    for (size_t i = 0; i < json_array_size(given->value) && rc == 0; i++) {
        const char *name = json_string_value(json_array_get(given->value, i));
        rc = name ? buf_addf(&text, err, "%s%s", i ? ";" : "", name) : member_refuse(given, err);
    }
    if (rc == 0 && sampler_order_parse(buf_text(&text), &r->sampling.order, err) < 0)
        rc = err_prefix(err, "\"%s\"", given->name);
    buf_release(&text);
    return rc;
}

/* OpenAI's true or false, beside top_logprobs; or the number of alternatives. */
int member_set_logprobs(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_boolean(given->value))
        return member_set_whole(r, given, err);
    r->openai_logprobs = json_is_true(given->value);
    if (!r->openai_logprobs)
        r->gen.logprobs = 0;
    return 0;
}

/* A path or number of an adapter, or an object of that and a scale. */
static bool is_adapter(const json_t *value)
{
    const json_t *id = json_is_object(value) ? json_object_get(value, "id") : value;
    const json_t *scale = json_is_object(value) ? json_object_get(value, "scale") : NULL;
    const size_t members = 1 + (scale != NULL);
    return (json_is_string(id) || (json_is_integer(id) && json_integer_value(id) >= 0)) &&
           (!json_is_object(value) || json_object_size(value) == members) &&
           (!scale || (json_is_number(scale) && fabs(json_number_value(scale)) <= 1e6));
}

int member_set_adapters(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *list = given->value, *one;
    size_t i;
    if (json_is_number(list)) /* the number of an adapter, or a factor? */
        return err_set(
            err,
            "\"%s\" is a number: give a list, as [1] for adapter 1 or [{\"id\": 1, \"scale\": "
            "0.5}], or [] for none",
            given->name);
    if (!json_is_array(list) && !json_is_string(list))
        return member_refuse(given, err);
    json_array_foreach(list, i, one)
    {
        if (!is_adapter(one))
            return err_set(err,
                           "\"%s\": entry %zu is no adapter: a name, a number, or {\"id\": .., "
                           "\"scale\": NUMBER} is expected",
                           given->name, i);
    }
    return member_set_value(r, given, err);
}

/* ---- constraints ---- */

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
