/* Parses requests, lines of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text_util.h"
#include "report/table.h"
#include "serve/members.h"

#define AT(field) offsetof(struct request, field)
#define MANY      MEMBER_MANY

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
    member_describe(&members[n], doc->expected, sizeof doc->expected);
    return true;
}

static int set_member(struct request *r, const struct given_member *given, struct err *err)
{
    static member_setter *const setters[] = {
        [ANY] = member_set_value,         [PROMPT] = member_set_prompt,
        [BOOL] = member_set_value,        [IDS] = member_set_ids,
        [TURNS] = member_set_objects,     [OBJECTS] = member_set_objects,
        [OBJECT] = member_set_value,      [COUNT] = member_set_whole,
        [SEED] = member_set_seed,         [REAL] = member_set_real,
        [FLAG] = member_set_flag,         [TEXTS] = member_set_stop,
        [BREAKERS] = member_set_breakers, [BIASES] = member_set_biases,
        [SCHEMA] = member_set_schema,     [GRAMMAR] = member_set_pattern,
        [REGEX] = member_set_pattern,     [CHOICES] = member_set_choices,
        [FORMAT] = member_set_format,     [ORDER] = member_set_order,
        [LOGPROBS] = member_set_logprobs, [ADAPTERS] = member_set_adapters,
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

/* Logprobs of OpenAI are requested by true, beside their number; a number alone is this project's. */
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

static json_t *load(const char *line, size_t len, json_error_t *why)
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
    json_t *root = load(copy, len, &ignored);
    free(copy);
    return root;
}

/* Parses a line into an object. */
static int parse_line(const char *line, size_t len, json_t **root, uint64_t *big_seed, struct err *err)
{
    json_error_t why;
    *root = load(line, len, &why);
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

/* Checks where a line of a batch is for. */
static int check_url(const struct request *r, struct err *err)
{
    static const char *const urls[][2] = {{"/v1/chat/completions", "messages"},
                                          {"/v1/completions", "prompt"}};
    const json_t *url = json_object_get(r->line, "url"), *method = json_object_get(r->line, "method");
    size_t i = 0;
    if (method && !json_is_null(method) && !is_text(method, "POST"))
        return err_set(err, "\"method\" is not \"POST\"");
    if (!url || json_is_null(url))
        return 0;
    while (i < ARRAY_LEN(urls) && !is_text(url, urls[i][0]))
        i++;
    if (i == ARRAY_LEN(urls))
        return err_set(err, "\"url\" is neither %s nor %s", urls[0][0], urls[1][0]);
    return has(r, urls[i][1])
               ? 0
               : err_set(err, "\"body\" has no \"%s\", which %s needs", urls[i][1], urls[i][0]);
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

int request_open(struct request *r, const char *line, size_t len, bool lenient, struct err *err)
{
    *r = (struct request){0};
    if (parse_line(line, len, &r->line, &r->big_seed, err) < 0)
        return -1;
    r->root = r->line;
    r->lenient = lenient;
    r->n_choices = 1;
    r->id = json_object_get(r->root, "id");
    const bool batch =
        json_object_get(r->line, "custom_id") || json_is_object(json_object_get(r->line, "body"));
    if (batch && open_batch(r, err) < 0)
        return -1;
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
    if (check_logprobs(r, err) < 0)
        return -1;
    if (json_is_true(r->continue_final_message) && json_is_true(r->add_generation_prompt))
        return err_set(
            err, "\"continue_final_message\" and \"add_generation_prompt\" are both true: an answer "
                 "is either continued or begun");
    r->gen.keep_special = !r->skip_special;
    if (is_text(json_object_get(r->root, "tool_choice"), "none"))
        r->tools = NULL;
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
    return member_check_ids(&given, err) < 0 ? -1 : add_ids(value, ids, err);
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
    r->prompt_ids = r->ids = r->messages = NULL;
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
