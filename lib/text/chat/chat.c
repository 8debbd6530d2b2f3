/* Chat formats, and what a model has of its own: parsing and storing; sampling settings. */
#include "text/chat/chat.h"

#include <ctype.h>

#include "base/json.h"
#include "base/number.h"
#include "base/text_util.h"

/* ---- sampling settings that a model's maker recommends ---- */

/* The setting of a name, of those that models recommend: SAMPLING_COUNT_OF_PARAMS if there is none. */
static size_t chat_setting_find(const char *name)
{
    const size_t param = sampling_find(name);
    return param < SAMPLING_COUNT_OF_PARAMS && sampling_params[param].generation
               ? param
               : SAMPLING_COUNT_OF_PARAMS;
}

bool chat_sampling_set(struct chat_sampling *sampling, size_t setting, double value)
{
    struct sampler_options scratch;
    if (!sampling_set(&scratch, setting, value) ||
        (value < 0 && sampling_params[setting].kind != SAMPLING_TOKENS))
        return false;
    sampling->given[setting] = true;
    sampling->value[setting] = value;
    return true;
}

struct sampler_options chat_sampling_defaults(const struct chat_sampling *sampling)
{
    struct sampler_options options = sampling_defaults();
    for (size_t i = 0; sampling && i < SAMPLING_COUNT_OF_PARAMS; i++)
        if (sampling->given[i])
            (void)sampling_set(&options, i, sampling->value[i]);
    return options;
}

bool chat_sampling_any(const struct chat_sampling *sampling)
{
    bool any = false;
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++)
        any |= sampling->given[i];
    return any;
}

/* Writes "sampling NAME VALUE" lines. */
static int chat_sampling_write(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] &&
            buf_addf(text, err, "sampling %s %s\n", sampling_params[i].name, number) < 0)
            return -1;
    }
    return 0;
}

int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text, struct err *err)
{
    char number[NUMBER_TEXT_SIZE];
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS; i++) {
        number_text(sampling->value[i], number);
        if (sampling->given[i] &&
            buf_addf(text, err, "%s%s %s", text->len ? ", " : "", sampling_params[i].name, number) < 0)
            return -1;
    }
    return 0;
}

/* ---- chat formats and what a model has of its own: parsing and storing ---- */

/* Renders a format that is given as texts around turns; the variables are its lines. */
static const char turns_template[] =
    "{{- begin }}\n"
    "{%- set ns = namespace(system=none, users_left=messages | selectattr('role', 'equalto', 'user')"
    " | list | length) %}\n"
    "{%- set usual = default_system | default('') %}\n"
    "{%- set said = (usual or system_always == 'yes') and messages[0].role != 'system' %}\n"
    "{%- for m in ([{'role': 'system', 'content': usual}] if said else []) + messages %}\n"
    "  {%- set strips = trim == 'all' or trim == 'answers' and m.role == 'assistant' %}\n"
    "  {%- set text = m.content | trim if strips else m.content %}\n"
    "  {%- if m.role == 'assistant' %}{{ assistant ~ text ~ assistant_end }}\n"
    "  {%- elif m.role == 'user' %}{{ user }}\n"
    "    {%- set ns.users_left = ns.users_left - 1 %}\n"
    "    {%- if ns.system is not none and (system_in_user == 'next' or not ns.users_left) %}\n"
    "      {{- system ~ ns.system ~ system_end }}{% set ns.system = none %}\n"
    "    {%- endif %}\n"
    "    {{- text ~ user_end }}\n"
    "  {%- elif system_in_user in ['next', 'last'] %}{% set ns.system = text %}\n"
    "  {%- else %}{{ system ~ text ~ system_end }}\n"
    "  {%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ answer if answer is defined else assistant }}{% endif %}";

/* ---- parsing ---- */

/* The lines of a format, in the order in which models store them. */
static const struct chat_line {
    const char *key;
    size_t most;         /* of lines that may occur several times; else 0 */
    const char *choices; /* of lines that are one of these words; else NULL: texts */
    bool recognises;     /* finds the format of a chat template; not stored with models */
} chat_lines[] = {
    {"format", 0, NULL, false},
    {"bos", 0, NULL, false},
    {"eos", 0, NULL, false},
    {"begin", 0, NULL, false},
    {"system", 0, NULL, false},
    {"system_end", 0, NULL, false},
    {"user", 0, NULL, false},
    {"user_end", 0, NULL, false},
    {"assistant", 0, NULL, false},
    {"assistant_end", 0, NULL, false},
    {"answer", 0, NULL, false},
    {"default_system", 0, NULL, false},
    {"end", CHAT_ENDS, NULL, false},
    {"mark", CHAT_MARKS, NULL, true},
    {"without", CHAT_MARKS, NULL, true},
    {"trim", 0, "no|all|answers", false},
    {"system_in_user", 0, "no|next|last", false},
    {"system_always", 0, "no|yes", false},
};

static int bad_line(const struct conf *conf, const struct conf_entry *entry, const char *expected,
                    struct err *err)
{
    return err_set(err, "%s: line %d: \"%s\" needs %s; see bmc-chat(5)", conf->name, entry->line,
                   entry->key, expected);
}

/* The value of a line, which must be a JSON string; NULL after an error. */
static json_t *read_string(const struct conf *conf, const struct conf_entry *entry, struct err *err)
{
    json_error_t why;
    json_t *value = json_load(entry->value, strlen(entry->value), JSON_DECODE_ANY, &why);
    if (json_is_string(value))
        return value;
    if (!value && json_error_code(&why) == json_error_out_of_memory)
        err_no_memory(err, "%s", conf->name);
    else
        bad_line(conf, entry, "a string in double quotes", err);
    json_decref(value);
    return NULL;
}

static int read_format_line(struct chat *chat, const struct chat_line *line, const struct conf *conf,
                            const struct conf_entry *entry, struct err *err)
{
    json_t *list = json_object_get(chat->lines, line->key);
    if (!line->most && conf_once(conf, entry, err) < 0)
        return -1;
    if (line->choices && text_choice(line->choices, entry->value) == SIZE_MAX) {
        char expected[64];
        text_join_choices(line->choices, ", ", " or ", expected, sizeof expected);
        return bad_line(conf, entry, expected, err);
    }
    if (line->most && json_array_size(list) == line->most)
        return err_set(err, "%s: line %d: more than %zu lines \"%s\"", conf->name, entry->line,
                       line->most, entry->key);
    json_t *value = line->choices ? json_string(entry->value) : read_string(conf, entry, err);
    if (!value)
        return line->choices ? err_no_memory(err, "%s", conf->name) : -1;
    if (list)
        return json_push(list, value, err);
    return json_put(chat->lines, line->key, line->most ? json_pack("[o]", value) : value, err);
}

static int read_name(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    for (const char *at = entry->value; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("-_.", *at))
            return bad_line(conf, entry, "a name of letters, digits, '-', '_' and '.'", err);
    if (conf_once(conf, entry, err) < 0)
        return -1;
    if (!*entry->value)
        return bad_line(conf, entry, "a name", err);
    free(chat->name);
    chat->name = strdup(entry->value);
    return chat->name ? 0 : err_no_memory(err, "%s", conf->name);
}

/* Reads a line ["name", "text"] of a model's own templates, tokens or prompts. */
static int read_named(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                      struct err *err)
{
    json_error_t why;
    AUTO(json_auto) json_t *pair = json_load(entry->value, strlen(entry->value), 0, &why);
    const char *name = json_string_value(json_array_get(pair, 0)),
               *text = json_string_value(json_array_get(pair, 1));
    int rc = 0;
    if (!pair && json_error_code(&why) == json_error_out_of_memory)
        rc = err_no_memory(err, "%s", conf->name);
    else if (!name || !text)
        rc = bad_line(conf, entry, "a name and a text in square brackets", err);
    else if (strcmp(entry->key, "prompt") == 0)
        rc = json_object_get(chat->prompts, name)
                 ? err_set(err, "%s: line %d: a second prompt \"%.60s\"", conf->name, entry->line, name)
                 : json_put(chat->prompts, name, json_incref(json_array_get(pair, 1)), err);
    else if ((strcmp(entry->key, "jinja") == 0 ? chat_add_jinja : chat_add_token)(chat, name, text,
                                                                                  err) < 0)
        rc = err_prefix(err, "%s: line %d", conf->name, entry->line);
    return rc;
}

/* Reads a line "NAME VALUE" of a model's sampling defaults. */
static int read_setting(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                        struct err *err)
{
    char name[32];
    const size_t len = strcspn(entry->value, " ");
    size_t setting = SAMPLING_COUNT_OF_PARAMS;
    double value;
    if (len < sizeof name) {
        memcpy(name, entry->value, len);
        name[len] = 0;
        setting = chat_setting_find(name);
    }
    if (setting == SAMPLING_COUNT_OF_PARAMS ||
        !parse_double(entry->value + len + (entry->value[len] == ' '), &value))
        return bad_line(conf, entry, "the name of a setting and a number", err);
    if (chat->sampling.given[setting])
        return err_set(err, "%s: line %d: %s is set twice", conf->name, entry->line, name);
    return chat_sampling_set(&chat->sampling, setting, value)
               ? 0
               : err_set(err, "%s: line %d: %s cannot be %g", conf->name, entry->line, name, value);
}

static int read_line(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    if (text_lists("jinja token prompt", entry->key, strlen(entry->key)))
        return read_named(chat, conf, entry, err);
    if (strcmp(entry->key, "sampling") == 0)
        return read_setting(chat, conf, entry, err);
    if (strcmp(entry->key, "chat") == 0)
        return read_name(chat, conf, entry, err);
    for (size_t i = 0; i < ARRAY_LEN(chat_lines); i++)
        if (strcmp(entry->key, chat_lines[i].key) == 0)
            return read_format_line(chat, &chat_lines[i], conf, entry, err);
    return err_set(err, "%s: line %d: unknown keyword \"%s\"; see bmc-chat(5)", conf->name, entry->line,
                   entry->key);
}

int chat_parse(struct chat *chat, const char *text, size_t size, const char *source, struct err *err)
{
    struct conf conf;
    *chat = (struct chat){0};
    if (conf_parse(&conf, text, size, source, err) < 0)
        return -1;
    chat->lines = json_object();
    chat->prompts = json_object();
    int rc = chat->lines && chat->prompts ? 0 : err_no_memory(err, "%s", source);
    for (size_t i = 0; i < conf.n_entries && rc == 0; i++)
        rc = read_line(chat, &conf, &conf.entry[i], err);
    const bool own = chat->n_jinja || chat->n_tokens || chat_sampling_any(&chat->sampling) ||
                     json_object_size(chat->prompts);
    const bool renders = chat_text(chat, "format") || chat_text(chat, "user");
    if (rc == 0 && (chat->name ? !renders : renders || !own))
        rc = err_set(err, "%s: a \"chat\" or \"user\" line is missing", source);
    if (rc < 0)
        chat_release(chat);
    conf_release(&conf);
    return rc;
}

static int add_named(struct chat_named *list, size_t *n, size_t most, const char *name,
                     const char *text, struct err *err)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(list[i].name, name) == 0)
            return 0;
    if (*n == most)
        return err_set(err, "\"%.60s\" is one too many: at most %zu are supported", name, most);
    struct chat_named *added = &list[*n];
    *added = (struct chat_named){strdup(name), strdup(text)};
    ++*n; /* chat_release() frees what there is */
    return added->name && added->text ? 0 : err_no_memory(err, "\"%.60s\"", name);
}

int chat_add_jinja(struct chat *chat, const char *name, const char *text, struct err *err)
{
    return add_named(chat->jinja, &chat->n_jinja, CHAT_TEMPLATES, name, text, err) < 0
               ? err_prefix(err, "chat template")
               : 0;
}

int chat_add_token(struct chat *chat, const char *name, const char *text, struct err *err)
{
    return add_named(chat->token, &chat->n_tokens, CHAT_TOKENS, name, text, err) < 0
               ? err_prefix(err, "special token")
               : 0;
}

static const char *find_named(const struct chat_named *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].text;
    return NULL;
}

const char *chat_jinja(const struct chat *chat, const char *name)
{
    return find_named(chat->jinja, chat->n_jinja, name);
}

const char *chat_token(const struct chat *chat, const char *name)
{
    return find_named(chat->token, chat->n_tokens, name);
}

const char *chat_text(const struct chat *chat, const char *key)
{
    return json_string_value(json_object_get(chat->lines, key));
}

const char *chat_template_text(const struct chat *chat)
{
    const char *text = chat_text(chat, "format");
    return text ? text : turns_template;
}

void chat_release(struct chat *chat)
{
    for (size_t i = 0; i < chat->n_jinja; i++) {
        free(chat->jinja[i].name);
        free(chat->jinja[i].text);
    }
    for (size_t i = 0; i < chat->n_tokens; i++) {
        free(chat->token[i].name);
        free(chat->token[i].text);
    }
    free(chat->name);
    json_decref(chat->lines);
    json_decref(chat->prompts);
    *chat = (struct chat){0};
}

size_t chat_match(const struct chat *chat, const char *chat_template, size_t len)
{
    const json_t *text;
    size_t bytes = 0, i;
    json_array_foreach(json_object_get(chat->lines, "mark"), i, text)
    {
        const size_t mark = json_string_length(text);
        if (!memmem(chat_template, len, json_string_value(text), mark))
            return 0;
        bytes += mark;
    }
    json_array_foreach(json_object_get(chat->lines, "without"), i, text)
    {
        if (memmem(chat_template, len, json_string_value(text), json_string_length(text)))
            return 0;
    }
    return bytes;
}

/* ---- storing ---- */

enum { MAX_STRING = 1 << 16 };

/* A text with {bos} and {eos} replaced; NULL: out of memory, or too long. */
static json_t *with_tokens(const json_t *text, struct slice bos, struct slice eos, struct err *err)
{
    AUTO(buf_release) struct buf begun = {0}, done = {0};
    json_t *json = NULL;
    if (slice_replace((struct slice){json_string_value(text), json_string_length(text)},
                      (struct slice){"{bos}", 5}, bos, MAX_STRING, &begun, err) == 0 &&
        slice_replace((struct slice){buf_text(&begun), begun.len}, (struct slice){"{eos}", 5}, eos,
                      MAX_STRING, &done, err) == 0)
        json = json_or_null(json_text(buf_text(&done), done.len), 0, err);
    return json;
}

int chat_set_tokens(struct chat *chat, const struct buf *bos, const struct buf *eos, struct err *err)
{
    const struct slice begins = {buf_text(bos), bos->len}, ends = {buf_text(eos), eos->len};
    int rc = 0;
    if (!chat->name || chat_text(chat, "bos"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(chat_lines) && rc == 0; i++) {
        const char *key = chat_lines[i].key;
        json_t *value = json_object_get(chat->lines, key);
        if (json_is_string(value) && strcmp(key, "format") != 0) {
            json_t *made = with_tokens(value, begins, ends, err);
            rc = made ? json_put(chat->lines, key, made, err) : -1;
        }
        for (size_t k = 0; k < json_array_size(value) && !chat_lines[i].recognises && rc == 0; k++) {
            json_t *made = with_tokens(json_array_get(value, k), begins, ends, err);
            rc = made ? json_array_set_new(value, k, made) : -1;
        }
    }
    if (rc == 0)
        rc = json_put(chat->lines, "bos", json_text(begins.data, begins.size), err);
    if (rc == 0)
        rc = json_put(chat->lines, "eos", json_text(ends.data, ends.size), err);
    return rc;
}

int chat_add_variables(const struct chat *chat, json_t *variables, struct err *err)
{
    int rc = json_object_update(variables, chat->lines) < 0 ? err_no_memory(err, "a chat format") : 0;
    if (rc == 0)
        rc = json_put(variables, "bos_token", json_incref(json_object_get(chat->lines, "bos")), err);
    if (rc == 0)
        rc = json_put(variables, "eos_token", json_incref(json_object_get(chat->lines, "eos")), err);
    return rc;
}

static int write_line(const char *key, const json_t *value, bool as_word, struct buf *text,
                      struct err *err)
{
    int rc = buf_addf(text, err, "%s ", key);
    if (rc == 0)
        rc = as_word ? buf_add(text, json_string_value(value), json_string_length(value), err)
                     : json_append(value, JSON_ENCODE_ANY | JSON_COMPACT, text, err);
    return rc == 0 ? buf_add(text, "\n", 1, err) : rc;
}

static int write_format(const struct chat *chat, struct buf *text, struct err *err)
{
    int rc = buf_addf(text, err, "chat %s\n", chat->name);
    for (size_t i = 0; i < ARRAY_LEN(chat_lines) && rc == 0; i++) {
        const struct chat_line *line = &chat_lines[i];
        const json_t *value = json_object_get(chat->lines, line->key);
        if (line->recognises || !value)
            continue;
        if (!line->most)
            rc = write_line(line->key, value, line->choices, text, err);
        for (size_t k = 0; k < json_array_size(value) && rc == 0; k++)
            rc = write_line(line->key, json_array_get(value, k), false, text, err);
    }
    return rc;
}

static int write_named(const char *key, const struct chat_named *list, size_t n, struct buf *text,
                       struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *pair = json_pack("[ss]", list[i].name, list[i].text);
        rc = pair ? write_line(key, pair, false, text, err) : err_no_memory(err, "a template");
        json_decref(pair);
    }
    return rc;
}

static int write_prompts(json_t *prompts, struct buf *text, struct err *err)
{
    const char *name;
    json_t *prompt;
    int rc = 0;
    json_object_foreach(prompts, name, prompt)
    {
        json_t *pair = rc == 0 ? json_pack("[sO]", name, prompt) : NULL;
        if (rc == 0)
            rc = pair ? write_line("prompt", pair, false, text, err) : err_no_memory(err, "a prompt");
        json_decref(pair);
    }
    return rc;
}

void chat_name_prompts(const json_t *prompts, char *names, size_t size)
{
    size_t used = 0;
    *names = 0;
    for (void *at = json_object_iter((json_t *)(uintptr_t)prompts); at && used < size;
         at = json_object_iter_next((json_t *)(uintptr_t)prompts, at)) {
        const char *name = json_object_iter_key(at);
        if (*name)
            used += (size_t)snprintf(names + used, size - used, "%s%.60s", used ? ", " : "", name);
    }
}

int chat_write(const struct chat *chat, struct buf *text, struct err *err)
{
    if ((chat->name && write_format(chat, text, err) < 0) ||
        write_named("jinja", chat->jinja, chat->n_jinja, text, err) < 0 ||
        write_named("token", chat->token, chat->n_tokens, text, err) < 0 ||
        write_prompts(chat->prompts, text, err) < 0)
        return -1;
    return chat_sampling_write(&chat->sampling, text, err);
}
