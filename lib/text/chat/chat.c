/* Chat templates: parsing, storing, rendering. */
#include "text/chat/chat.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "text/slice.h"

const char *const chat_roles[] = {"system", "user", "assistant", NULL};

/* ---- parsing ---- */

static const char *const part_keys[CHAT_PARTS] = {
    [CHAT_BEGIN] = "begin",
    [CHAT_SYSTEM] = "system",
    [CHAT_SYSTEM_END] = "system_end",
    [CHAT_USER] = "user",
    [CHAT_USER_END] = "user_end",
    [CHAT_ASSISTANT] = "assistant",
    [CHAT_ASSISTANT_END] = "assistant_end",
    [CHAT_ANSWER] = "answer",
    [CHAT_DEFAULT_SYSTEM] = "default_system",
};

/* Keys of lines that may occur several times. */
#define AT(field) offsetof(struct chat, field)
static const struct {
    const char *key;
    size_t list, n, most;
} list_keys[] = {
    {"mark", AT(mark), AT(n_marks), CHAT_MARKS},
    {"without", AT(without), AT(n_without), CHAT_MARKS},
    {"end", AT(end), AT(n_ends), CHAT_ENDS},
};

static const struct {
    const char *key;
    size_t choice;
    const char *names[4];
    const char *expected;
} choice_keys[] = {
    {"trim", AT(trim), {"no", "all", "answers"}, "no, all or answers"},
    {"system_in_user", AT(system_in_user), {"no", "next", "last"}, "no, next or last"},
    {"system_always", AT(system_always), {"no", "yes"}, "no or yes"},
};

static int bad_line(const struct conf *conf, const struct conf_entry *entry, const char *expected,
                    struct err *err)
{
    return err_set(err, "%s: line %d: \"%s\" needs %s; see bmc-chat(5)", conf->name, entry->line,
                   entry->key, expected);
}

/* Reads the value of a line, which must be a JSON string, to *text. */
static int read_string(const struct conf *conf, const struct conf_entry *entry, char **text,
                       struct err *err)
{
    json_error_t why;
    json_t *value = json_load(entry->value, strlen(entry->value), JSON_DECODE_ANY, &why);
    if (!value && json_error_code(&why) == json_error_out_of_memory)
        return err_no_memory(err, "%s", conf->name);
    if (!json_is_string(value)) {
        json_decref(value);
        return bad_line(conf, entry, "a string in double quotes", err);
    }
    free(*text);
    *text = strdup(json_string_value(value));
    json_decref(value);
    return *text ? 0 : err_no_memory(err, "%s", conf->name);
}

static int read_list(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                     size_t i, struct err *err)
{
    char **list = (char **)(void *)((char *)chat + list_keys[i].list);
    size_t *n = (size_t *)(void *)((char *)chat + list_keys[i].n);
    if (*n == list_keys[i].most)
        return err_set(err, "%s: line %d: more than %zu lines \"%s\"", conf->name, entry->line,
                       list_keys[i].most, entry->key);
    if (read_string(conf, entry, &list[*n], err) < 0)
        return -1;
    ++*n;
    return 0;
}

static int read_choice(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                       size_t i, struct err *err)
{
    for (int c = 0; choice_keys[i].names[c]; c++)
        if (strcmp(entry->value, choice_keys[i].names[c]) == 0) {
            *(int *)(void *)((char *)chat + choice_keys[i].choice) = c;
            return 0;
        }
    return bad_line(conf, entry, choice_keys[i].expected, err);
}

static int read_name(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    for (const char *at = entry->value; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("-_.", *at))
            return bad_line(conf, entry, "a name of letters, digits, '-', '_' and '.'", err);
    if (!*entry->value)
        return bad_line(conf, entry, "a name", err);
    free(chat->name);
    chat->name = strdup(entry->value);
    return chat->name ? 0 : err_no_memory(err, "%s", conf->name);
}

/* Reads a line ["name", "text"] of a model's own templates or tokens. */
static int read_named(struct chat *chat, const struct conf *conf, const struct conf_entry *entry,
                      struct err *err)
{
    json_error_t why;
    json_t *pair = json_load(entry->value, strlen(entry->value), 0, &why);
    const char *name = json_string_value(json_array_get(pair, 0)),
               *text = json_string_value(json_array_get(pair, 1));
    int rc = 0;
    if (!pair && json_error_code(&why) == json_error_out_of_memory)
        rc = err_no_memory(err, "%s", conf->name);
    else if (!name || !text)
        rc = bad_line(conf, entry, "a name and a text in square brackets", err);
    else if ((strcmp(entry->key, "jinja") == 0 ? chat_add_jinja : chat_add_token)(chat, name, text,
                                                                                  err) < 0)
        rc = err_prefix(err, "%s: line %d", conf->name, entry->line);
    json_decref(pair);
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
    for (size_t i = 0; i < ARRAY_LEN(list_keys); i++)
        if (strcmp(entry->key, list_keys[i].key) == 0)
            return read_list(chat, conf, entry, i, err);
    if (strcmp(entry->key, "jinja") == 0 || strcmp(entry->key, "token") == 0)
        return read_named(chat, conf, entry, err);
    if (strcmp(entry->key, "sampling") == 0)
        return read_setting(chat, conf, entry, err);
    if (conf_once(conf, entry, err) < 0)
        return -1;
    if (strcmp(entry->key, "chat") == 0)
        return read_name(chat, conf, entry, err);
    for (size_t i = 0; i < CHAT_PARTS; i++)
        if (strcmp(entry->key, part_keys[i]) == 0)
            return read_string(conf, entry, &chat->part[i], err);
    for (size_t i = 0; i < ARRAY_LEN(choice_keys); i++)
        if (strcmp(entry->key, choice_keys[i].key) == 0)
            return read_choice(chat, conf, entry, i, err);
    return err_set(err, "%s: line %d: unknown keyword \"%s\"; see bmc-chat(5)", conf->name, entry->line,
                   entry->key);
}

/* Sets strings that the template omits: `answer` to `assistant`, all others to "". */
static int complete(struct chat *chat, const struct conf *conf, struct err *err)
{
    const bool own = chat->n_jinja || chat->n_tokens || chat_sampling_any(&chat->sampling);
    if ((!chat->name || !chat->part[CHAT_USER]) && (chat->name || chat->part[CHAT_USER] || !own))
        return err_set(err, "%s: a \"chat\" or \"user\" line is missing", conf->name);
    for (size_t i = 0; i < CHAT_PARTS; i++) {
        const char *usual =
            i == CHAT_ANSWER && chat->part[CHAT_ASSISTANT] ? chat->part[CHAT_ASSISTANT] : "";
        if (!chat->part[i] && !(chat->part[i] = strdup(usual)))
            return err_no_memory(err, "%s", conf->name);
    }
    return 0;
}

int chat_parse(struct chat *chat, const char *text, size_t size, const char *source, struct err *err)
{
    struct conf conf;
    *chat = (struct chat){0};
    if (conf_parse(&conf, text, size, source, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < conf.n_entries && rc == 0; i++)
        rc = read_line(chat, &conf, &conf.entry[i], err);
    if (rc == 0)
        rc = complete(chat, &conf, err);
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
    for (size_t i = 0; i < CHAT_PARTS; i++)
        free(chat->part[i]);
    for (size_t i = 0; i < CHAT_MARKS; i++) {
        free(chat->mark[i]);
        free(chat->without[i]);
    }
    for (size_t i = 0; i < CHAT_ENDS; i++)
        free(chat->end[i]);
    *chat = (struct chat){0};
}

size_t chat_match(const struct chat *chat, const char *chat_template, size_t len)
{
    size_t bytes = 0;
    for (size_t i = 0; i < chat->n_marks; i++) {
        const size_t mark = strlen(chat->mark[i]);
        if (!memmem(chat_template, len, chat->mark[i], mark))
            return 0;
        bytes += mark;
    }
    for (size_t i = 0; i < chat->n_without; i++)
        if (memmem(chat_template, len, chat->without[i], strlen(chat->without[i])))
            return 0;
    return bytes;
}

/* ---- storing ---- */

static struct slice slice_of(const char *text) { return (struct slice){text, strlen(text)}; }

enum { MAX_STRING = 1 << 16 };

/* Writes the line: key "value", a JSON string, with {bos} and {eos} replaced. */
static int write_string(const char *key, const char *value, const char *bos, const char *eos,
                        struct buf *text, struct err *err)
{
    struct buf begun = {0}, done = {0};
    json_t *json = NULL;
    int rc = -1;
    if (slice_replace(slice_of(value), slice_of("{bos}"), slice_of(bos), MAX_STRING, &begun, err) ==
            0 &&
        slice_replace((struct slice){buf_text(&begun), begun.len}, slice_of("{eos}"), slice_of(eos),
                      MAX_STRING, &done, err) == 0 &&
        buf_addf(text, err, "%s ", key) == 0) {
        json = json_text(buf_text(&done), done.len);
        rc = json ? json_append(json, JSON_ENCODE_ANY, text, err) : err_no_memory(err, "a chat format");
    }
    if (rc == 0)
        rc = buf_add(text, "\n", 1, err);
    json_decref(json);
    buf_release(&begun);
    buf_release(&done);
    return rc;
}

static int write_format(const struct chat *chat, const char *bos, const char *eos, struct buf *text,
                        struct err *err)
{
    if (buf_addf(text, err, "chat %s\n", chat->name) < 0)
        return -1;
    for (size_t i = 0; i < CHAT_PARTS; i++)
        if (write_string(part_keys[i], chat->part[i], bos, eos, text, err) < 0)
            return -1;
    for (size_t i = 0; i < chat->n_ends; i++)
        if (write_string("end", chat->end[i], bos, eos, text, err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(choice_keys); i++) {
        const int chosen = *(const int *)(const void *)((const char *)chat + choice_keys[i].choice);
        if (buf_addf(text, err, "%s %s\n", choice_keys[i].key, choice_keys[i].names[chosen]) < 0)
            return -1;
    }
    return 0;
}

static int write_named(const char *key, const struct chat_named *list, size_t n, struct buf *text,
                       struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        json_t *pair = json_pack("[ss]", list[i].name, list[i].text);
        rc = pair ? buf_addf(text, err, "%s ", key) : err_no_memory(err, "a template");
        if (rc == 0)
            rc = json_append(pair, JSON_COMPACT, text, err);
        if (rc == 0)
            rc = buf_add(text, "\n", 1, err);
        json_decref(pair);
    }
    return rc;
}

int chat_write(const struct chat *chat, const char *bos, const char *eos, struct buf *text,
               struct err *err)
{
    if (chat->name && write_format(chat, bos, eos, text, err) < 0)
        return -1;
    if (write_named("jinja", chat->jinja, chat->n_jinja, text, err) < 0 ||
        write_named("token", chat->token, chat->n_tokens, text, err) < 0)
        return -1;
    return chat_sampling_write(&chat->sampling, text, err);
}

/* ---- rendering ---- */

static int append_text(struct marked_text *out, const char *text, struct err *err)
{
    return buf_add(&out->text, text, strlen(text), err);
}

/* Appends the content of a turn to `out` and records its byte range. */
static int append_content(const struct chat *chat, struct marked_text *out,
                          const struct chat_turn *turn, struct err *err)
{
    const bool trim = chat->trim == CHAT_TRIM_ALL ||
                      (chat->trim == CHAT_TRIM_ANSWERS && turn->role == CHAT_ROLE_ASSISTANT);
    size_t start = 0, end = turn->len;
    while (trim && start < end && isspace((unsigned char)turn->text[start]))
        start++;
    while (trim && start < end && isspace((unsigned char)turn->text[end - 1]))
        end--;
    return marked_add_content(out, turn->text + start, end - start, err);
}

/* State of rendering a conversation. */
struct renderer {
    const struct chat *chat;
    struct marked_text *out;
    /* system prompt to be put into a user turn; NULL: none */
    const struct chat_turn *pending_system;
};

static int render_turn(struct renderer *renderer, enum chat_part before, const struct chat_turn *turn,
                       enum chat_part after, struct err *err)
{
    return append_text(renderer->out, renderer->chat->part[before], err) < 0 ||
                   append_content(renderer->chat, renderer->out, turn, err) < 0
               ? -1
               : append_text(renderer->out, renderer->chat->part[after], err);
}

static int render_user_turn(struct renderer *renderer, const struct chat_turn *turn, bool last,
                            struct err *err)
{
    const struct chat_turn *system = renderer->pending_system;
    if (append_text(renderer->out, renderer->chat->part[CHAT_USER], err) < 0)
        return -1;
    if (system && (last || renderer->chat->system_in_user == CHAT_SYSTEM_IN_NEXT)) {
        if (render_turn(renderer, CHAT_SYSTEM, system, CHAT_SYSTEM_END, err) < 0)
            return -1;
        renderer->pending_system = NULL;
    }
    return append_content(renderer->chat, renderer->out, turn, err) < 0
               ? -1
               : append_text(renderer->out, renderer->chat->part[CHAT_USER_END], err);
}

static int render_any_turn(struct renderer *renderer, const struct chat_turn *turn, bool last,
                           struct err *err)
{
    switch (turn->role) {
    case CHAT_ROLE_SYSTEM:
        if (renderer->chat->system_in_user == CHAT_SYSTEM_ALONE)
            return render_turn(renderer, CHAT_SYSTEM, turn, CHAT_SYSTEM_END, err);
        renderer->pending_system = turn;
        return 0;
    case CHAT_ROLE_USER: return render_user_turn(renderer, turn, last, err);
    case CHAT_ROLE_ASSISTANT:
        return render_turn(renderer, CHAT_ASSISTANT, turn, CHAT_ASSISTANT_END, err);
    case CHAT_ROLES: break;
    }
    return 0;
}

/* The index of the user's last turn, SIZE_MAX: there is none. */
static size_t last_question(const struct chat_turn *turn, size_t n)
{
    while (n && turn[n - 1].role != CHAT_ROLE_USER)
        n--;
    return n - 1;
}

int chat_render(const struct chat *chat, const char *system, const struct chat_turn *turn, size_t n,
                unsigned how, struct marked_text *out, struct err *err)
{
    const bool begins = how & CHAT_BEGINS, open_end = how & CHAT_OPEN_END;
    const char *usual = chat->part[CHAT_DEFAULT_SYSTEM];
    if (!system && begins && (*usual || chat->system_always))
        system = usual;
    struct renderer renderer = {chat, out, NULL};
    const size_t last = last_question(turn, n);
    if (last == SIZE_MAX || turn[n - 1].role == CHAT_ROLE_SYSTEM)
        return err_set(err, "the last turn of a conversation must be the user's, or an answer to it");
    if (open_end && turn[n - 1].role != CHAT_ROLE_ASSISTANT)
        return err_set(err, "the last turn of a conversation is no answer that could be continued");
    if (begins && append_text(out, chat->part[CHAT_BEGIN], err) < 0)
        return -1;
    const struct chat_turn default_turn = {CHAT_ROLE_SYSTEM, system, system ? strlen(system) : 0};
    if (system && turn->role != CHAT_ROLE_SYSTEM &&
        render_any_turn(&renderer, &default_turn, false, err) < 0)
        return -1;
    for (size_t i = 0; i < n - open_end; i++)
        if (render_any_turn(&renderer, &turn[i], i == last, err) < 0)
            return -1;
    if (open_end)
        return append_text(out, chat->part[CHAT_ASSISTANT], err) < 0
                   ? -1
                   : append_content(chat, out, &turn[n - 1], err);
    return append_text(out, chat->part[CHAT_ANSWER], err);
}

int chat_render_end(const struct chat *chat, struct marked_text *out, struct err *err)
{
    return append_text(out, chat->part[CHAT_ASSISTANT_END], err);
}
