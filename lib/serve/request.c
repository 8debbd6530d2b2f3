/* Parses requests, lines of JSON. */
#include "serve/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/mem.h"
#include "base/text_util.h"
#include "report/table.h"

enum member_kind {
    ANY,
    TEXT,
    BOOL,
    IDS,
    TURNS,
    OBJECTS,
    OBJECT,
    COUNT,
    KEY,
    REAL,
    FLAG,
    TEXTS,
    BREAKERS,
    BIASES,
    SCHEMA,
    GRAMMAR,
    REGEX,
    CHOICES,
    FORMAT,
    ORDER
};

struct member {
    const char *names[6]; /* canonical name, then aliases */
    enum member_kind kind;
    double min, max; /* limits of a number */
    size_t at;       /* offset of the value in struct request */
};

#define AT(field) offsetof(struct request, field)
#define MANY      1e19 /* no limit: exceeds all of jansson's integers */

static const struct member members[] = {
    {{"id"}, ANY, 0, 0, AT(id)},
    {{"from"}, ANY, 0, 0, AT(from)},
    {{"prompt"}, TEXT, 0, 0, AT(text)},
    {{"ids", "prompt_ids", "prompt_token_ids"}, IDS, 0, 0, AT(ids)},
    {{"messages"}, TURNS, 0, 0, AT(messages)},
    {{"tools"}, OBJECTS, 0, 0, AT(tools)},
    {{"documents"}, OBJECTS, 0, 0, AT(documents)},
    {{"add_generation_prompt"}, BOOL, 0, 0, AT(add_generation_prompt)},
    {{"chat_template_kwargs"}, OBJECT, 0, 0, AT(template_variables)},
    {{"parse_special"}, BOOL, 0, 0, AT(parse_special)},
    {{"n", "max_tokens", "max_new_tokens", "n_predict", "max_completion_tokens"},
     COUNT,
     -1,
     MANY,
     AT(gen.n)},
    {{"temp", "temperature"}, REAL, -1e9, 1e9, AT(sampling.temp)},
    {{"top_k"}, COUNT, 0, MANY, AT(sampling.top_k)},
    {{"top_p"}, REAL, 0, 1, AT(sampling.top_p)},
    {{"min_p"}, REAL, 0, 1, AT(sampling.min_p)},
    {{"top_n_sigma"}, REAL, 0, 1e6, AT(sampling.top_n_sigma)},
    {{"typical_p"}, REAL, 0, 1, AT(sampling.typical_p)},
    {{"xtc_probability"}, REAL, 0, 1, AT(sampling.xtc_probability)},
    {{"xtc_threshold"}, REAL, 0, 1, AT(sampling.xtc_threshold)},
    {{"dynatemp_range"}, REAL, 0, 1e6, AT(sampling.dynatemp_range)},
    {{"dynatemp_exponent"}, REAL, 0, 1e3, AT(sampling.dynatemp_exponent)},
    {{"dry_multiplier"}, REAL, 0, 1e3, AT(sampling.dry_multiplier)},
    {{"dry_base"}, REAL, 0, 1e3, AT(sampling.dry_base)},
    {{"dry_allowed_length"}, COUNT, 0, MANY, AT(sampling.dry_allowed_length)},
    {{"dry_penalty_last_n"}, COUNT, -1, MANY, AT(sampling.dry_last_n)},
    {{"dry_sequence_breakers"}, BREAKERS, 0, 0, AT(breaker)},
    {{"mirostat"}, COUNT, 0, 2, AT(sampling.mirostat)},
    {{"mirostat_tau"}, REAL, 0, 1e3, AT(sampling.mirostat_tau)},
    {{"mirostat_eta"}, REAL, 0, 1, AT(sampling.mirostat_eta)},
    {{"samplers"}, ORDER, 0, 0, AT(sampling.order)},
    {{"seed"}, KEY, 0, MANY, AT(gen.seed)},
    {{"stop", "stop_strings", "stop_sequences"}, TEXTS, 0, 0, AT(stop)},
    {{"ignore_eos"}, FLAG, 0, 0, AT(gen.ignore_eos)},
    {{"repeat_penalty", "repetition_penalty"}, REAL, 1e-3, 1e3, AT(sampling.repeat_penalty)},
    {{"repeat_last_n"}, COUNT, -1, MANY, AT(sampling.repeat_last_n)},
    {{"presence_penalty"}, REAL, -1e3, 1e3, AT(sampling.presence_penalty)},
    {{"frequency_penalty"}, REAL, -1e3, 1e3, AT(sampling.frequency_penalty)},
    {{"logit_bias"}, BIASES, 0, 0, AT(bias)},
    {{"logprobs", "top_logprobs", "n_probs"}, COUNT, 0, 1000, AT(gen.logprobs)},
    {{"prompt_logprobs"}, COUNT, 0, 1000, AT(gen.prompt_logprobs)},
    {{"json_schema"}, SCHEMA, 0, 0, AT(constraint)},
    {{"grammar"}, GRAMMAR, 0, 0, AT(constraint)},
    {{"regex"}, REGEX, 0, 0, AT(constraint)},
    {{"choice"}, CHOICES, 0, 0, AT(constraint)},
    {{"response_format"}, FORMAT, 0, 0, AT(constraint)},
};

static void describe(const struct member *member, char *text, size_t size)
{
    static const char *const plain[] = {
        [ANY] = "any value",
        [TEXT] = "a string",
        [IDS] = "a list of token ids",
        [TURNS] = "a list of objects with role and content",
        [OBJECTS] = "a list of objects",
        [OBJECT] = "an object",
        [BOOL] = "true or false",
        [FLAG] = "true or false",
        [TEXTS] = "a string or a list of strings",
        [BREAKERS] = "a list of strings",
        [BIASES] = "an object of token ids and numbers",
        [SCHEMA] = "a JSON Schema",
        [GRAMMAR] = "a string",
        [REGEX] = "a string",
        [CHOICES] = "a list of strings",
        [FORMAT] = "an object with type",
        [ORDER] = "a list of names of samplers",
    };
    const char *number = member->kind == REAL ? "a number" : "a whole number";
    if (member->kind != COUNT && member->kind != KEY && member->kind != REAL)
        snprintf(text, size, "%s", plain[member->kind]);
    else if (member->max == MANY)
        snprintf(text, size, "%s, %g or more", number, member->min);
    else
        snprintf(text, size, "%s from %g to %g", number, member->min, member->max);
}

bool request_member(size_t n, struct member_doc *doc)
{
    if (n >= ARRAY_LEN(members))
        return false;
    doc->names = members[n].names;
    describe(&members[n], doc->expected, sizeof doc->expected);
    return true;
}

struct given_member {
    const struct member *member;
    const char *name; /* name that the request uses */
    const json_t *value;
};

static int refuse(const struct given_member *given, struct err *err)
{
    char expected[80], found[40];
    describe(given->member, expected, sizeof expected);
    if (json_is_number(given->value))
        number_text(json_number_value(given->value), found);
    else
        snprintf(found, sizeof found, "%s", json_type_name(given->value));
    return err_set(err, "\"%s\" is %s, %s is expected", given->name, found, expected);
}

static int set_value(struct request *r, const struct given_member *given, struct err *err)
{
    if ((given->member->kind == TEXT && !json_is_string(given->value)) ||
        (given->member->kind == OBJECT && !json_is_object(given->value)) ||
        (given->member->kind == BOOL && !json_is_boolean(given->value)))
        return refuse(given, err);
    *(const json_t **)((char *)r + given->member->at) = given->value;
    return 0;
}

static int check_ids(const struct given_member *given, struct err *err)
{
    const json_t *ids = given->value;
    if (!json_is_array(ids))
        return refuse(given, err);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return err_set(err, "\"%s\": entry %zu is not a token id", given->name, i);
    }
    return 0;
}

static int set_ids(struct request *r, const struct given_member *given, struct err *err)
{
    return check_ids(given, err) < 0 ? -1 : set_value(r, given, err);
}

/* A list of objects, whose members the chat template reads. */
static int set_objects(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *list = given->value, *one;
    size_t i;
    if (!json_is_array(list))
        return refuse(given, err);
    json_array_foreach(list, i, one)
    {
        if (!json_is_object(one))
            return err_set(err, "\"%s\": entry %zu is %s, an object is expected", given->name, i,
                           json_type_name(one));
    }
    return set_value(r, given, err);
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
static int set_whole(struct request *r, const struct given_member *given, struct err *err)
{
    char *at = (char *)r + given->member->at;
    json_int_t whole;
    if (!read_whole(given->value, &whole) || !in_range(given->member, (double)whole))
        return refuse(given, err);
    if (given->member->kind == KEY)
        *(uint64_t *)at = (uint64_t)whole;
    else
        *(size_t *)at = (size_t)whole;
    return 0;
}

static int set_real(struct request *r, const struct given_member *given, struct err *err)
{
    const double x = json_number_value(given->value);
    if (!json_is_number(given->value) || !in_range(given->member, x))
        return refuse(given, err);
    *(double *)((char *)r + given->member->at) = x;
    return 0;
}

static int set_flag(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_boolean(given->value))
        return refuse(given, err);
    *(bool *)((char *)r + given->member->at) = json_is_true(given->value);
    return 0;
}

/* Sets an array of borrowed strings, in owned storage. */
static int read_texts(const struct given_member *given, char ***out, size_t *n, struct err *err)
{
    const json_t *list = given->value;
    *n = json_is_array(list) ? json_array_size(list) : 1;
    char **to = *out = mem_zalloc(*n + 1, sizeof *to);
    if (!to)
        return err_set(err, "out of memory for %zu strings", *n);
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
static int set_stop(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_array(given->value) && !json_is_string(given->value))
        return refuse(given, err);
    if (read_texts(given, &r->stop, &r->gen.n_stops, err) < 0)
        return -1;
    r->gen.stop = r->stop;
    return 0;
}

static int set_breakers(struct request *r, const struct given_member *given, struct err *err)
{
    r->breakers_given = true;
    return json_is_array(given->value) ? read_texts(given, &r->breaker, &r->n_breakers, err)
                                       : refuse(given, err);
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
static int set_biases(struct request *r, const struct given_member *given, struct err *err)
{
    const char *id;
    json_t *value, *object = (json_t *)(uintptr_t)given->value;
    size_t n = 0;
    if (!json_is_object(object))
        return refuse(given, err);
    r->bias = mem_alloc(json_object_size(object) + 1, sizeof *r->bias);
    if (!r->bias)
        return err_set(err, "out of memory for %zu biases", json_object_size(object));
    json_object_foreach(object, id, value)
    {
        if (read_bias(id, value, &r->bias[n++], err) < 0)
            return -1;
    }
    r->sampling.bias = r->bias;
    r->sampling.n_biases = n;
    return 0;
}

static int set_order(struct request *r, const struct given_member *given, struct err *err)
{
    struct buf text = {0};
    int rc = json_array_size(given->value) ? 0 : refuse(given, err);
    for (size_t i = 0; i < json_array_size(given->value) && rc == 0; i++) {
        const char *name = json_string_value(json_array_get(given->value, i));
        rc = name ? buf_addf(&text, err, "%s%s", i ? ";" : "", name) : refuse(given, err);
    }
    if (rc == 0 && sampler_order_parse(buf_text(&text), &r->sampling.order, err) < 0)
        rc = err_prefix(err, "\"%s\"", given->name);
    buf_release(&text);
    return rc;
}

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

static int set_schema(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_object(given->value) && !json_is_boolean(given->value))
        return refuse(given, err);
    return set_constraint(r, given, CONSTRAINT_JSON_SCHEMA, given->value, err);
}

static int set_pattern(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_string(given->value))
        return refuse(given, err);
    return set_constraint(r, given,
                          given->member->kind == REGEX ? CONSTRAINT_REGEX : CONSTRAINT_GRAMMAR,
                          given->value, err);
}

static int set_choices(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_array_size(given->value))
        return refuse(given, err);
    for (size_t i = 0; i < json_array_size(given->value); i++)
        if (!json_is_string(json_array_get(given->value, i)))
            return err_set(err, "\"%s\" holds %s, strings are expected", given->name,
                           json_type_name(json_array_get(given->value, i)));
    return set_constraint(r, given, CONSTRAINT_CHOICE, given->value, err);
}

/* OpenAI's response_format: {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema":
 * ..}}. */
static int set_format(struct request *r, const struct given_member *given, struct err *err)
{
    const char *type = json_string_value(json_object_get(given->value, "type"));
    const json_t *schema = json_object_get(json_object_get(given->value, "json_schema"), "schema");
    if (!type)
        return refuse(given, err);
    if (strcmp(type, "text") == 0)
        return set_constraint(r, given, CONSTRAINT_NONE, NULL, err);
    if (strcmp(type, "json_object") == 0)
        return set_constraint(r, given, CONSTRAINT_JSON_OBJECT, NULL, err);
    if (strcmp(type, "json_schema") != 0)
        return err_set(err, "\"%s\": the type \"%s\" is none of text, json_object and json_schema",
                       given->name, excerpt_of(type, strlen(type)).text);
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return err_set(err, "\"%s\": a schema is expected at json_schema.schema, found %s", given->name,
                       json_type_name(schema));
    return set_constraint(r, given, CONSTRAINT_JSON_SCHEMA, schema, err);
}

static int set(struct request *r, const struct given_member *given, struct err *err)
{
    static int (*const setters[])(struct request *, const struct given_member *, struct err *) = {
        [ANY] = set_value,         [TEXT] = set_value,    [BOOL] = set_value,
        [IDS] = set_ids,           [TURNS] = set_objects, [OBJECTS] = set_objects,
        [OBJECT] = set_value,      [COUNT] = set_whole,   [KEY] = set_whole,
        [REAL] = set_real,         [FLAG] = set_flag,     [TEXTS] = set_stop,
        [BREAKERS] = set_breakers, [BIASES] = set_biases, [SCHEMA] = set_schema,
        [GRAMMAR] = set_pattern,   [REGEX] = set_pattern, [CHOICES] = set_choices,
        [FORMAT] = set_format,     [ORDER] = set_order,
    };
    return setters[given->member->kind](r, given, err);
}

/* Finds the table entry of the field called `key`, NULL: unknown. *name is the table's copy of that
 * name, which outlives `key`. */
static const struct member *find_member(const char *key, const char **name)
{
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        for (const char *const *at = members[i].names; *at; at++)
            if (strcmp(*at, key) == 0) {
                *name = *at;
                return &members[i];
            }
    return NULL;
}

/* For fields that other servers accept: what to use instead, or NULL. */
static const char *explain_foreign(const char *key)
{
    static const char *const foreign[][2] = {
        {"model", "the model of the run is given with -m"},
        {"stream", "each result is a line, written when it is complete"},
    };
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        if (strcmp(foreign[i][0], key) == 0)
            return foreign[i][1];
    return NULL;
}

/* Edit distance of two field names, ignoring case; SIZE_MAX if too large for a typing error. */
static size_t name_distance(const char *key, const char *name)
{
    char small[64];
    const size_t len = strlen(key);
    if (len >= sizeof small)
        return SIZE_MAX;
    for (size_t i = 0; i <= len; i++)
        small[i] = (char)(key[i] >= 'A' && key[i] <= 'Z' ? key[i] - 'A' + 'a' : key[i]);
    const size_t distance = edit_distance(small, name);
    return distance <= size_min(len, strlen(name)) / 3 ? distance : SIZE_MAX;
}

int request_unknown(const char *key, const char *const *names, size_t n, struct err *err)
{
    const char *best = NULL, *why = explain_foreign(key);
    const struct excerpt found = excerpt_of(key, strlen(key));
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const size_t distance = name_distance(key, names[i]);
        best = distance < least ? names[i] : best;
        least = size_min(least, distance);
    }
    if (why)
        return err_set(err, "unknown member \"%s\": %s (--lenient ignores unknown ones)", found.text,
                       why);
    if (best)
        return err_set(err,
                       "unknown member \"%s\"; did you mean \"%s\"? (--lenient ignores unknown ones)",
                       found.text, best);
    return err_set(err, "unknown member \"%s\" (--lenient ignores unknown ones)", found.text);
}

static int refuse_name(const char *key, struct err *err)
{
    const char *names[ARRAY_LEN(members) * ARRAY_LEN(members[0].names)];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        for (const char *const *at = members[i].names; *at; at++)
            names[n++] = *at;
    return request_unknown(key, names, n, err);
}

/* Checks that every field of the request is known and occurs under only one of its names. */
static int check_names(const struct request *r, bool lenient, struct err *err)
{
    const char *first[ARRAY_LEN(members)] = {NULL}, *key, *name;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        const struct member *member = find_member(key, &name);
        if (!member && !lenient)
            return refuse_name(key, err);
        if (!member || json_is_null(value))
            continue;
        const char **before = &first[member - members];
        if (*before)
            return err_set(err, "\"%s\" and \"%s\" mean the same: give one of them", *before, name);
        *before = name;
    }
    return 0;
}

int request_line(const char *line, size_t len, json_t **root, struct err *err)
{
    json_error_t why;
    size_t blanks = 0;
    *root = NULL;
    while (blanks < len && (line[blanks] == ' ' || line[blanks] == '\t' || line[blanks] == '\r'))
        blanks++;
    if (blanks == len)
        return err_set(err, "is empty, an object is expected");
    *root = json_load_whole(line, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!*root && json_error_code(&why) == json_error_out_of_memory)
        return err_set(err, "out of memory for its JSON");
    if (!*root)
        return err_set(err, "not valid JSON at column %d: %s", why.column, why.text);
    if (json_is_object(*root))
        return 0;
    err_set(err, "is %s, an object is expected", json_type_name(*root));
    json_decref(*root);
    *root = NULL;
    return -1;
}

int request_open(struct request *r, const char *line, size_t len, bool lenient, struct err *err)
{
    *r = (struct request){0};
    if (request_line(line, len, &r->root, err) < 0)
        return -1;
    r->id = json_object_get(r->root, "id");
    r->from = json_object_get(r->root, "from");
    r->from = json_is_null(r->from) ? NULL : r->from;
    return check_names(r, lenient, err);
}

int request_apply(struct request *r, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        struct given_member given = {.value = value};
        given.member = find_member(key, &given.name);
        if (given.member && !json_is_null(value) && set(r, &given, err) < 0)
            return -1;
    }
    r->gen.sampling = &r->sampling;
    return r->sampling.mirostat == 1 ? err_set(err, "\"mirostat\" is 1: version 2 is implemented") : 0;
}

static int add_ids(const json_t *list, struct ids *ids, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (ids_add(ids, (uint32_t)json_integer_value(json_array_get(list, i)), err) < 0)
            return -1;
    return 0;
}

int request_ids(const struct request *r, struct ids *ids, struct err *err)
{
    return add_ids(r->ids, ids, err);
}

int request_ids_of(const json_t *value, struct ids *ids, struct err *err)
{
    struct given_member given = {.name = "ids", .value = value};
    given.member = find_member(given.name, &given.name);
    return check_ids(&given, err) < 0 ? -1 : add_ids(value, ids, err);
}

char *request_format_id(const json_t *id, struct err *err)
{
    struct buf text = {0};
    if (json_format(id, JSON_COMPACT | JSON_REAL_PRECISION(17), &text, err) == 0)
        return text.data;
    buf_release(&text);
    return NULL;
}

void request_close(struct request *r)
{
    json_decref(r->root);
    free(r->breaker);
    free(r->stop);
    free(r->bias);
    buf_release(&r->constraint_text);
    *r = (struct request){0};
}
