/* A request: the values of its members, and their table; parsing. */
#include "serve/request.h"

#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"
#include "report/table.h"
#include "text/tools/tool_call.h"

#define AT(field) offsetof(struct request, field)
#define MANY      SAMPLING_MANY /* no limit: exceeds all of jansson's integers */

enum member_kind {
    ANY,
    PROMPT,
    BOOL,
    IDS,
    TURNS,
    OBJECTS,
    OBJECT,
    COUNT,
    SEED,
    LOGPROBS,
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
    ORDER,
    ADAPTERS,
    TOOL_CHOICE,
    REASONING,
    WORDS
};

struct member {
    const char *names[6]; /* canonical name, then aliases */
    enum member_kind kind;
    double min, max; /* limits of a number */
    size_t at;       /* offset of the value in struct request */
};

/* Stop strings are looked for at each token, sequence breakers in each token of the vocabulary. */
enum { MOST_TEXTS = 1 << 14 };

struct given_member {
    const struct member *member;
    const char *name; /* name that the request uses */
    const json_t *value;
};

/* Fails with the sentence that another value is expected. */
static int refuse_value(const struct given_member *given, struct err *err);

/* ---- values ---- */

static int set_value(struct request *r, const struct given_member *given, struct err *err)
{
    (void)err;
    *(const json_t **)((char *)r + given->member->at) = given->value;
    return 0;
}

static int check_ids(const struct given_member *given, struct err *err)
{
    const json_t *ids = given->value;
    if (!json_is_array(ids))
        return refuse_value(given, err);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return err_set(err, "\"%s\": entry %zu is not a token id", given->name, i);
    }
    return 0;
}

/* A prompt as a text or as ids, or OpenAI's list of prompts. */
static int set_prompt(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *first = json_array_get(given->value, 0);
    const bool wrapped = json_is_string(first) || json_is_array(first);
    struct given_member one = *given;
    for (size_t i = 1; wrapped && i < json_array_size(given->value); i++) {
        one.value = json_array_get(given->value, i);
        if (!json_is_string(one.value) && check_ids(&one, err) < 0)
            return -1;
        r->prompts = given->value;
    }
    one.value = wrapped ? first : given->value;
    r->n_prompts++;
    if (json_is_string(one.value)) {
        r->prompt.text = json_string_value(one.value);
        r->prompt.len = json_string_length(one.value);
        return 0;
    }
    r->prompt_ids = one.value;
    return check_ids(&one, err);
}

static int set_ids(struct request *r, const struct given_member *given, struct err *err)
{
    r->n_prompts++;
    return check_ids(given, err) < 0 ? -1 : set_value(r, given, err);
}

/* A list of objects, whose members the chat template reads. */
static int set_objects(struct request *r, const struct given_member *given, struct err *err)
{
    const json_t *list = given->value, *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (!json_is_object(one))
            return err_set(err, "\"%s\": entry %zu is %s, an object is expected", given->name, i,
                           json_type_name(one));
    }
    r->n_prompts += given->member->kind == TURNS;
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
        return refuse_value(given, err);
    *(size_t *)at = (size_t)whole;
    return 0;
}

/* A seed; for -1 one is drawn. */
static int set_seed(struct request *r, const struct given_member *given, struct err *err)
{
    json_int_t whole;
    if (!read_whole(given->value, &whole) || (whole < -1 && whole != REQUEST_BIG_SEED))
        return refuse_value(given, err);
    r->gen.seed = whole == REQUEST_BIG_SEED ? r->big_seed : (uint64_t)whole;
    r->gen.seed_drawn = whole == -1;
    if (whole == REQUEST_BIG_SEED && !r->big_seed)
        return refuse_value(given, err);
    return whole == -1 ? seed_draw(&r->gen.seed, err) : 0;
}

static int set_real(struct request *r, const struct given_member *given, struct err *err)
{
    const double x = json_number_value(given->value);
    if (!in_range(given->member, x))
        return refuse_value(given, err);
    *(double *)((char *)r + given->member->at) = x;
    return 0;
}

static int set_flag(struct request *r, const struct given_member *given, struct err *err)
{
    (void)err;
    *(bool *)((char *)r + given->member->at) = json_is_true(given->value);
    return 0;
}

/* Sets an array of borrowed strings, in owned storage. */
static int read_texts(const struct given_member *given, char ***out, size_t *n, struct err *err)
{
    const json_t *list = given->value;
    *n = json_is_array(list) ? json_array_size(list) : 1;
    if (*n > MOST_TEXTS)
        return err_set(err, "\"%s\" has %zu strings: at most %d are possible", given->name, *n,
                       MOST_TEXTS);
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
static int set_stop(struct request *r, const struct given_member *given, struct err *err)
{
    if (read_texts(given, &r->stop, &r->gen.stop.n, err) < 0)
        return -1;
    r->gen.stop.text = r->stop;
    return 0;
}

static int set_breakers(struct request *r, const struct given_member *given, struct err *err)
{
    r->breakers_given = true;
    free(r->breaker); /* of a snapshot */
    r->breaker = NULL;
    return read_texts(given, &r->breaker, &r->n_breakers, err);
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

static int set_order(struct request *r, const struct given_member *given, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    int rc = json_array_size(given->value) ? 0 : refuse_value(given, err);
    for (size_t i = 0; i < json_array_size(given->value) && rc == 0; i++) {
        const char *name = json_string_value(json_array_get(given->value, i));
        rc = name ? buf_addf(&text, err, "%s%s", i ? ";" : "", name) : refuse_value(given, err);
    }
    if (rc == 0 && sampler_order_parse(buf_text(&text), &r->sampling.order, err) < 0)
        rc = err_prefix(err, "\"%s\"", given->name);
    return rc;
}

/* Either OpenAI's boolean, used with top_logprobs, or the number of alternatives. */
static int set_logprobs(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_is_boolean(given->value))
        return set_whole(r, given, err);
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

static int set_adapters(struct request *r, const struct given_member *given, struct err *err)
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
        return refuse_value(given, err);
    json_array_foreach(list, i, one)
    {
        if (!is_adapter(one))
            return err_set(err,
                           "\"%s\": entry %zu is no adapter: a name, a number, or {\"id\": .., "
                           "\"scale\": NUMBER} is expected",
                           given->name, i);
    }
    return set_value(r, given, err);
}

/* ---- reasoning and tool calls ---- */

/* none, auto or required; or OpenAI's object with the name of a function. */
static int set_tool_choice(struct request *r, const struct given_member *given, struct err *err)
{
    static const char kinds_of_choice[] = "auto|none|required";
    const char *text = json_string_value(given->value), *name = tool_name(given->value);
    const size_t kind = text ? text_choice(kinds_of_choice, text) : TOOL_CHOICE_NAME;
    if (kind == SIZE_MAX || (!text && !name))
        return refuse_value(given, err);
    r->answer.choice.kind = (enum tool_choice_kind)kind;
    r->answer.choice.name = name;
    r->answer.choice_given = true;
    return 0;
}

static int set_reasoning(struct request *r, const struct given_member *given, struct err *err)
{
    const size_t form = text_choice(REASONING_FORMS, json_string_value(given->value));
    if (form == SIZE_MAX)
        return refuse_value(given, err);
    r->answer.reasoning = (enum reasoning_form)(REASONING_HIDE + form);
    return 0;
}

static int set_words(struct request *r, const struct given_member *given, struct err *err)
{
    const char *text = json_string_value(given->value);
    if (strlen(text) != json_string_length(given->value))
        return err_set(err, "\"%s\" holds a zero character", given->name);
    *(const char **)((char *)r + given->member->at) = text;
    return 0;
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

static int set_schema(struct request *r, const struct given_member *given, struct err *err)
{
    return set_constraint(r, given, CONSTRAINT_JSON_SCHEMA, given->value, err);
}

static int set_pattern(struct request *r, const struct given_member *given, struct err *err)
{
    return set_constraint(r, given,
                          given->member->kind == REGEX ? CONSTRAINT_REGEX : CONSTRAINT_GRAMMAR,
                          given->value, err);
}

static int set_choices(struct request *r, const struct given_member *given, struct err *err)
{
    if (!json_array_size(given->value))
        return refuse_value(given, err);
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

static int set_format(struct request *r, const struct given_member *given, struct err *err)
{
    const char *type = json_string_value(json_object_get(given->value, "type"));
    const json_t *wrapped = json_object_get(given->value, "json_schema"),
                 *schema = json_object_get(wrapped ? wrapped : given->value, "schema");
    const struct format *f = formats;
    if (!type)
        return refuse_value(given, err);
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

/* ---- kinds of values ---- */

/* Sets of JSON's types. */
enum {
    MAPS = 1 << JSON_OBJECT,
    LISTS = 1 << JSON_ARRAY,
    STRINGS = 1 << JSON_STRING,
    BOOLS = 1 << JSON_TRUE | 1 << JSON_FALSE,
    NUMBERS = 1 << JSON_INTEGER | 1 << JSON_REAL,
    ALL_TYPES = MAPS | LISTS | STRINGS | BOOLS | NUMBERS
};

/* The types of a kind's values, what is expected in sentences (NULL: a number in a range), and what checks the rest and
 * stores the value in the request. */
static const struct {
    unsigned types;
    const char *expected;
    int (*set)(struct request *r, const struct given_member *given, struct err *err);
} kinds[] = {
    [ANY] = {ALL_TYPES, "any value", set_value},
    [PROMPT] = {LISTS | STRINGS, "a string or a list of token ids", set_prompt},
    [BOOL] = {BOOLS, "true or false", set_value},
    [IDS] = {LISTS, "a list of token ids", set_ids},
    [TURNS] = {LISTS, "a list of objects with role and content", set_objects},
    [OBJECTS] = {LISTS, "a list of objects", set_objects},
    [OBJECT] = {MAPS, "an object", set_value},
    [COUNT] = {NUMBERS, NULL, set_whole},
    [SEED] = {NUMBERS, "a whole number from -1 to 2^64-1", set_seed},
    [LOGPROBS] = {BOOLS | NUMBERS, "true or false, or a whole number from 0 to 1000", set_logprobs},
    [REAL] = {NUMBERS, NULL, set_real},
    [FLAG] = {BOOLS, "true or false", set_flag},
    [TEXTS] = {LISTS | STRINGS, "a string or a list of strings", set_stop},
    [BREAKERS] = {LISTS, "a list of strings", set_breakers},
    [BIASES] = {MAPS, "an object of token ids and numbers", set_biases},
    [SCHEMA] = {MAPS | BOOLS, "a JSON Schema", set_schema},
    [GRAMMAR] = {STRINGS, "a string", set_pattern},
    [REGEX] = {STRINGS, "a string", set_pattern},
    [CHOICES] = {LISTS, "a list of strings", set_choices},
    [FORMAT] = {MAPS, "an object with type", set_format},
    [ORDER] = {LISTS, "a list of names of samplers", set_order},
    [ADAPTERS] = {LISTS | STRINGS | NUMBERS, "a list of adapters", set_adapters},
    [TOOL_CHOICE] = {MAPS | STRINGS, "auto, none, required, or an object with a function's name",
                     set_tool_choice},
    [REASONING] = {STRINGS, "hide, show or separate", set_reasoning},
    [WORDS] = {STRINGS, "a string", set_words},
};

static void describe_member(const struct member *member, char *text, size_t size)
{
    const char *number = member->kind == REAL ? "a number" : "a whole number";
    if (kinds[member->kind].expected)
        snprintf(text, size, "%s", kinds[member->kind].expected);
    else if (member->max == MANY)
        snprintf(text, size, "%s, %g or more", number, member->min);
    else
        snprintf(text, size, "%s from %g to %g", number, member->min, member->max);
}

static int refuse_value(const struct given_member *given, struct err *err)
{
    char expected[80], found[40];
    describe_member(given->member, expected, sizeof expected);
    if (json_is_number(given->value))
        number_text(json_number_value(given->value), found);
    else
        snprintf(found, sizeof found, "%s", json_type_name(given->value));
    return err_set(err, "\"%s\" is %s, %s is expected", given->name, found, expected);
}

static int set_member(struct request *r, const struct given_member *given, struct err *err)
{
    return kinds[given->member->kind].types >> json_typeof(given->value) & 1
               ? kinds[given->member->kind].set(r, given, err)
               : refuse_value(given, err);
}

/* ---- the table ---- */

/* Members that set sampling parameters. */
#define MEMBER(kind, field, name, alias, min, max) {{name, alias}, kind, min, max, AT(sampling.field)},
#define MEMBER_REAL(...)                           MEMBER(REAL, __VA_ARGS__)
#define MEMBER_COUNT(...)                          MEMBER(COUNT, __VA_ARGS__)
#define MEMBER_TOKENS(...)                         MEMBER(COUNT, __VA_ARGS__)
#define MEMBER_VERSION(...)                        MEMBER(COUNT, __VA_ARGS__)
#define MEMBER_ORDER(...)                          MEMBER(ORDER, __VA_ARGS__)
#define MEMBER_STATE(...)                          /* not in requests */
#define SAMPLING_MEMBER(kind, field, name, alias, min, max, ...)                                       \
    MEMBER_##kind(field, name, alias, min, max)

static const struct member members[] = {
    {{"id"}, ANY, 0, 0, AT(id)},
    {{"from"}, ANY, 0, 0, AT(from)},
    {{"prompt"}, PROMPT, 0, 0, AT(prompt)},
    {{"ids", "prompt_ids", "prompt_token_ids"}, IDS, 0, 0, AT(ids)},
    {{"messages"}, TURNS, 0, 0, AT(messages)},
    {{"tools"}, OBJECTS, 0, 0, AT(tools)},
    {{"tool_choice"}, TOOL_CHOICE, 0, 0, AT(answer)},
    {{"parallel_tool_calls"}, BOOL, 0, 0, AT(parallel_tool_calls)},
    {{"reasoning"}, REASONING, 0, 0, AT(answer)},
    {{"reasoning_budget", "thinking_budget"}, COUNT, -1, MANY, AT(answer.budget)},
    {{"reasoning_budget_message"}, WORDS, 0, 0, AT(answer.last_words)},
    {{"documents"}, OBJECTS, 0, 0, AT(documents)},
    {{"add_generation_prompt"}, BOOL, 0, 0, AT(add_generation_prompt)},
    {{"continue_final_message"}, BOOL, 0, 0, AT(continue_final_message)},
    {{"chat_template_kwargs"}, OBJECT, 0, 0, AT(template_variables)},
    {{"parse_special"}, BOOL, 0, 0, AT(parse_special)},
    {{"stream"}, FLAG, 0, 0, AT(stream)},
    {{"cancel"}, ANY, 0, 0, AT(cancel)},
    {{"n", "max_tokens", "max_new_tokens", "n_predict", "max_completion_tokens"},
     COUNT,
     -1,
     MANY,
     AT(gen.n)},
    {{"n_choices", "n_cmpl"}, COUNT, 1, 128, AT(n_choices)},
    SAMPLING_PARAMS(SAMPLING_MEMBER){{"dry_sequence_breakers"}, BREAKERS, 0, 0, AT(breaker)},
    {{"seed"}, SEED, 0, 0, AT(gen.seed)},
    {{"stop", "stop_strings", "stop_sequences"}, TEXTS, 0, 0, AT(stop)},
    {{"ignore_eos"}, FLAG, 0, 0, AT(gen.ignore_eos)},
    {{"skip_special_tokens"}, FLAG, 0, 0, AT(skip_special)},
    {{"logit_bias"}, BIASES, 0, 0, AT(bias)},
    {{"logprobs"}, LOGPROBS, 0, 1000, AT(gen.logprobs)},
    {{"top_logprobs", "n_probs"}, COUNT, 0, 1000, AT(gen.logprobs)},
    {{"prompt_logprobs"}, COUNT, 0, 1000, AT(gen.prompt_logprobs)},
    {{"json_schema"}, SCHEMA, 0, 0, AT(constraint)},
    {{"grammar"}, GRAMMAR, 0, 0, AT(constraint)},
    {{"regex"}, REGEX, 0, 0, AT(constraint)},
    {{"choice"}, CHOICES, 0, 0, AT(constraint)},
    {{"response_format"}, FORMAT, 0, 0, AT(constraint)},
    {{"lora"}, ADAPTERS, 0, 0, AT(lora)},
};

bool request_member(size_t n, struct member_doc *doc)
{
    if (n >= ARRAY_LEN(members))
        return false;
    doc->names = members[n].names;
    describe_member(&members[n], doc->expected, sizeof doc->expected);
    return true;
}

/* ---- names ---- */

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

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool has(const struct request *r, const char *name)
{
    const json_t *value = json_object_get(r->root, name);
    return value && !json_is_null(value);
}

/* True for the "n" of a request in OpenAI's form: the number of answers. */
static bool is_answers(const struct request *r, const char *name)
{
    return strcmp(name, "n") == 0 &&
           (r->openai || has(r, "messages") || has(r, "max_tokens") || has(r, "max_completion_tokens"));
}

/* The table entry of a field of the request: find_member(), with OpenAI's meaning of "n". */
static const struct member *member_of(const struct request *r, const char *key, const char **name)
{
    if (!is_answers(r, key))
        return find_member(key, name);
    const struct member *member = find_member("n_choices", name);
    *name = "n";
    return member;
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
    const char *best = NULL;
    const struct excerpt found = excerpt_of(key, strlen(key));
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const size_t distance = name_distance(key, names[i]);
        best = distance < least ? names[i] : best;
        least = size_min(least, distance);
    }
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

/* Says what "n" of OpenAI would be. */
static const char *other_answers(const struct member *member, const char *name, const char *other)
{
    return member->at != AT(gen.n) || (strcmp(name, "n") != 0 && strcmp(other, "n") != 0)
               ? ""
               : " (for several answers: \"n_choices\")";
}

/* OpenAI requests logprobs by true and their number by top_logprobs; bmc's own form is a number. */
static int check_logprobs(struct request *r, struct err *err)
{
    const json_t *asked = json_object_get(r->root, "logprobs");
    const bool top = json_is_number(json_object_get(r->root, "top_logprobs")) ||
                     json_is_number(json_object_get(r->root, "n_probs"));
    if (json_is_number(asked) && top)
        return err_set(err, "\"logprobs\" is a number beside \"top_logprobs\", true is expected");
    if (json_is_false(asked))
        r->gen.logprobs = 0;
    if (!r->openai_logprobs)
        return 0;
    r->top_logprobs = top ? r->gen.logprobs : 0;
    r->gen.logprobs = size_max(1, r->top_logprobs);
    return 0;
}

/* Finds the members of other servers' requests. */
static int find_foreign(struct request *r, struct err *err)
{
    const char *key, *name;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        const int found =
            find_member(key, &name) ? 1 : foreign_member(key, value, &r->ignored, &r->openai, err);
        if (!r->lenient && found <= 0)
            return found < 0 ? -1 : refuse_name(key, err);
    }
    return 0;
}

/* Checks that every field of the request occurs under only one of its names. */
static int check_names(const struct request *r, struct err *err)
{
    const char *first[ARRAY_LEN(members)] = {NULL}, *key, *name;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        const struct member *member = member_of(r, key, &name);
        if (!member || json_is_null(value))
            continue;
        const char **before = &first[member - members];
        if (*before)
            return err_set(err, "\"%s\" and \"%s\" mean the same: give one of them%s", *before, name,
                           other_answers(member, *before, name));
        *before = name;
    }
    return 0;
}

static json_t *load_json(const char *line, size_t len, json_error_t *why)
{
    return json_load(line, len,
                     JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_FEW_VALUES, why);
}

/* The value of a member "seed" that ends at byte `end` and exceeds jansson's integers, with its length; 0: it is
 * another member. */
static uint64_t read_big_seed(const char *line, size_t end, size_t *n_digits)
{
    static const char name[] = "\"seed\"";
    char digits[24] = "";
    size_t at = end, value;
    while (at > 0 && line[at - 1] >= '0' && line[at - 1] <= '9')
        at--;
    *n_digits = end - at;
    if (*n_digits >= sizeof digits)
        return 0;
    memcpy(digits, line + at, *n_digits);
    while (at > 0 && strchr(" \t:", line[at - 1]))
        at--;
    return at >= sizeof name - 1 && memcmp(line + at - (sizeof name - 1), name, sizeof name - 1) == 0 &&
                   parse_size(digits, &value)
               ? value
               : 0;
}

/* Parses a line with a seed above 63 bits again, with REQUEST_BIG_SEED in its place. */
static json_t *load_big_seed(const char *line, size_t len, json_error_t *why, uint64_t *seed)
{
    const size_t end = (size_t)why->position;
    json_error_t ignored;
    size_t n_digits = 0;
    char *copy = NULL, place[8];
    *seed = read_big_seed(line, end, &n_digits);
    if (!*seed || !(copy = malloc(len)))
        return NULL;
    memcpy(copy, line, len);
    memset(copy + end - n_digits, ' ', n_digits);
    memcpy(copy + end - n_digits, place, (size_t)snprintf(place, sizeof place, "%d", REQUEST_BIG_SEED));
    json_t *root = load_json(copy, len, &ignored);
    free(copy);
    return root;
}

/* Parses a line into an object. */
static int parse_line(const char *line, size_t len, json_t **root, uint64_t *big_seed, struct err *err)
{
    json_error_t why;
    *root = load_json(line, len, &why);
    if (!*root && json_error_code(&why) == json_error_numeric_overflow)
        *root = load_big_seed(line, len, &why, big_seed);
    if (!*root && json_error_code(&why) == json_error_out_of_memory)
        return err_no_memory(err, "its JSON");
    if (!*root)
        return err_set(err, "not valid JSON at column %d: %s", why.column, why.text);
    if (json_is_object(*root))
        return 0;
    err_set(err, "is %s, an object is expected", json_type_name(*root));
    json_decref(*root);
    *root = NULL;
    return -1;
}

int request_line(const char *line, size_t len, json_t **root, struct err *err)
{
    uint64_t ignored;
    return parse_line(line, len, root, &ignored, err);
}

int request_check_url(const struct request *r, const char *url, struct err *err)
{
    static const char *const urls[][2] = {{"/v1/chat/completions", "messages"},
                                          {"/v1/completions", "prompt"},
                                          {"/v1/embeddings", "input"}};
    size_t i = 0;
    while (i < ARRAY_LEN(urls) && strcmp(url, urls[i][0]) != 0)
        i++;
    if (i == ARRAY_LEN(urls))
        return err_set(err, "\"url\" is neither %s nor %s nor %s", urls[0][0], urls[1][0], urls[2][0]);
    return has(r, urls[i][1]) ? 0
                              : err_set(err, "%s no \"%s\", which %s needs",
                                        r->batch ? "\"body\" has" : "there is", urls[i][1], urls[i][0]);
}

/* Checks where a line of a batch is for. */
static int check_url(const struct request *r, struct err *err)
{
    const json_t *url = json_object_get(r->line, "url"), *method = json_object_get(r->line, "method");
    if (method && !json_is_null(method) && !is_text(method, "POST"))
        return err_set(err, "\"method\" is not \"POST\"");
    return url && !json_is_null(url)
               ? request_check_url(r, json_is_string(url) ? json_string_value(url) : "", err)
               : 0;
}

/* Finds the request in a line of one of OpenAI's batches, where each is answered at once. */
static int open_batch(struct request *r, struct err *err)
{
    static const char *const others[] = {"id", "stream", "from", "cancel"};
    json_t *body = json_object_get(r->line, "body");
    r->id = json_object_get(r->line, "custom_id");
    r->batch = r->openai = true;
    if (!r->id)
        return err_set(err, "\"custom_id\" is missing, which a line of a batch with \"body\" needs");
    if (!r->lenient && check_known("a line of a batch", r->line, "custom_id method url body", err) < 0)
        return -1;
    if (!json_is_object(body))
        return err_set(err, "\"body\" is %s, an object is expected", json_type_name(body));
    r->root = body;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (has(r, others[i]) && !json_is_false(json_object_get(body, others[i])))
            return err_set(err, "\"body\" has \"%s\", which lines of batches do not: leave it out",
                           others[i]);
    return check_url(r, err);
}

int request_parse(struct request *r, const char *line, size_t len, unsigned flags, struct err *err)
{
    *r = (struct request){0};
    if (parse_line(line, len, &r->line, &r->big_seed, err) < 0)
        return -1;
    r->root = r->line;
    r->lenient = flags & REQUEST_LENIENT;
    r->openai = flags & REQUEST_OPENAI;
    r->n_choices = 1;
    r->id = json_object_get(r->root, "id");
    const bool batch =
        json_object_get(r->line, "custom_id") || json_is_object(json_object_get(r->line, "body"));
    return batch ? open_batch(r, err) : 0;
}

int request_open(struct request *r, const char *line, size_t len, unsigned flags, struct err *err)
{
    if (request_parse(r, line, len, flags, err) < 0)
        return -1;
    if (r->batch && is_text(json_object_get(r->line, "url"), "/v1/embeddings"))
        return err_set(err, "\"url\" is /v1/embeddings: bmc-gen --embed answers such lines");
    if (r->big_seed && json_integer_value(json_object_get(r->root, "seed")) != REQUEST_BIG_SEED)
        return err_set(err, "a member \"seed\" inside another one exceeds 63 bits");
    r->from = json_object_get(r->root, "from");
    r->from = json_is_null(r->from) ? NULL : r->from;
    r->cancel = json_object_get(r->root, "cancel");
    r->cancel = json_is_null(r->cancel) ? NULL : r->cancel;
    return find_foreign(r, err) < 0 ? -1 : check_names(r, err);
}

int request_check_cancel(const struct request *r, bool lenient, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->root, key, value)
    {
        if (!lenient && value != r->cancel && value != r->id && !json_is_null(value))
            return err_set(err, "\"cancel\" goes with no other member than \"id\"");
    }
    return 0;
}

int request_apply(struct request *r, struct err *err)
{
    const char *key;
    json_t *value;
    r->skip_special = !r->gen.keep_special;
    json_object_foreach(r->root, key, value)
    {
        struct given_member given = {.value = value};
        given.member = member_of(r, key, &given.name);
        if (given.member && !json_is_null(value) && set_member(r, &given, err) < 0)
            return -1;
    }
    r->include_usage =
        json_is_true(json_object_get(json_object_get(r->root, "stream_options"), "include_usage"));
    if (check_logprobs(r, err) < 0)
        return -1;
    if (json_is_true(r->continue_final_message) && json_is_true(r->add_generation_prompt))
        return err_set(
            err, "\"continue_final_message\" and \"add_generation_prompt\" are both true: an answer "
                 "is either continued or begun");
    r->gen.keep_special = !r->skip_special;
    r->no_tools = r->answer.choice.kind == TOOL_CHOICE_NONE;
    if (r->no_tools)
        r->tools = NULL;
    if (r->parallel_tool_calls)
        r->answer.choice.single = json_is_false(r->parallel_tool_calls);
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

void request_set_prompt(struct request *r, const struct prompt *prompt)
{
    r->prompt = *prompt;
    r->n_prompts++;
}

int request_ids(const struct request *r, struct ids *ids, struct err *err)
{
    const struct ids typed = {.id = (uint32_t *)(uintptr_t)r->prompt.ids, .len = r->prompt.n_ids};
    return typed.len ? ids_append(ids, &typed, err)
                     : add_ids(r->ids ? r->ids : r->prompt_ids, ids, err);
}

int request_ids_of(const json_t *value, struct ids *ids, struct err *err)
{
    struct given_member given = {.value = value};
    given.member = find_member("ids", &given.name);
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

void request_drop_prompt(struct request *r)
{
    static const char *const names[] = {"prompt", "messages", "ids", "prompt_ids", "prompt_token_ids"};
    r->is_chat = r->messages != NULL;
    r->prompts = r->prompt_ids = r->ids = r->messages = NULL;
    r->prompt = (struct prompt){0};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        json_object_del(r->root, names[i]);
}

void request_close(struct request *r)
{
    json_decref(r->line);
    free(r->breaker);
    free(r->stop);
    free(r->bias);
    buf_release(&r->constraint_text);
    *r = (struct request){0};
}
