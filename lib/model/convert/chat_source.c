/* Detects the chat format from a source's chat template, and finds its BOS and EOS tokens. */
#include "model/convert/chat_source.h"

#include "base/file.h"
#include "model/chat_registry.h"
#include "model/convert/generation_source.h"
#include "text/jinja/jinja.h"

/* The first error is kept in *err, and nothing is done from then on. */
struct source_search {
    const struct weight_source *source;
    const struct chat_choice *choice;
    const struct config *config;
    struct err *err;
    bool failed;
    json_t *tokenizer_config; /* tokenizer_config.json, or NULL */
    json_t *template_config;  /* chat_template.json, or NULL */
    json_t *folder;           /* additional_chat_templates, in the form of that file, or NULL */
    json_t *specials;         /* special_tokens_map.json, or NULL */
    struct chat own;          /* the model's templates and special tokens */
    struct tokenizer *tok;
    struct slice chat_template; /* the default one; {NULL, 0}: none */
    struct buf bos, eos;
};

/* Calls a function that reports to s->err, unless there is an error; true: there is one now. */
#define TRY(s, call) ((s)->failed = (s)->failed || (call) < 0)

struct slice text_of_source(const struct weight_source *source, enum source_text which)
{
    const struct source_bytes text = source->text[which];
    return (struct slice){text.data, text.size};
}

/* A JSON text of the source, parsed; NULL if it has none. */
static json_t *parse_text(struct source_search *s, enum source_text which)
{
    const struct slice text = text_of_source(s->source, which);
    json_t *json = NULL;
    if (text.data)
        TRY(s, json_parse(text.data, text.size, s->source->path, &json, s->err));
    return json;
}

static void add_jinja(struct source_search *s, const char *name, const char *text, size_t len)
{
    AUTO(free_auto) char *copy = strndup(text, len);
    if (!s->failed && TRY(s, copy ? chat_add_jinja(&s->own, name, copy, s->err)
                                  : err_no_memory(s->err, "a chat template")))
        (void)err_prefix(s->err, "%s", s->source->path);
}

static void add_json(struct source_search *s, const char *name, const json_t *text)
{
    if (name && json_is_string(text))
        add_jinja(s, name, json_string_value(text), json_string_length(text));
}

/* Whether a Jinja template was chosen, by path. */
static bool chosen_jinja(const struct source_search *s)
{
    return s->choice->name && chat_is_jinja_path(s->choice->name);
}

static void add_chosen(struct source_search *s)
{
    struct file_map map;
    if (TRY(s, file_map(&map, s->choice->name, s->err)))
        return;
    add_jinja(s, "default", map.data ? (const char *)map.data : "", map.size);
    file_unmap(&map);
}

/* Adds the templates of a "chat_template", which is a string, a list of named strings, or an object of strings. */
static void add_listed(struct source_search *s, json_t *text)
{
    const char *key;
    json_t *one;
    size_t i;
    add_json(s, "default", text);
    json_array_foreach(text, i, one)
    {
        add_json(s, json_string_value(json_object_get(one, "name")), json_object_get(one, "template"));
    }
    json_object_foreach(text, key, one) { add_json(s, key, one); }
}

/* Collects the chat templates. Of a name, the first counts: a chosen one, those in files of their own,
 * then those inside of configurations, whose further ones files replace, as in transformers. */
static void find_templates(struct source_search *s)
{
    const struct slice file = text_of_source(s->source, SOURCE_CHAT_TEMPLATE);
    const json_t *const configs[] = {s->folder, s->tokenizer_config, s->template_config};
    if (chosen_jinja(s))
        add_chosen(s);
    if (file.data)
        add_jinja(s, "default", file.data, file.size);
    for (size_t c = 0; c < ARRAY_LEN(configs); c++)
        if (c == 0 || !(file.data || s->folder) || !chat_jinja(&s->own, "default"))
            add_listed(s, json_object_get(configs[c], "chat_template"));
    const char *text = chat_jinja(&s->own, "default");
    s->chat_template = (struct slice){text, text ? strlen(text) : 0};
}

/* The text of a token: a string, or an object with "content". */
static const char *token_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text ? text : json_string_value(json_object_get(value, "content"));
}

static void add_token(struct source_search *s, const char *name, const char *text)
{
    if (text && !s->failed && TRY(s, chat_add_token(&s->own, name, text, s->err)))
        (void)err_prefix(s->err, "%s", s->source->path);
}

/* Collects the special tokens that templates know by name. */
static void find_named_tokens(struct source_search *s)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    const json_t *const configs[] = {s->tokenizer_config,
                                     json_object_get(s->tokenizer_config, "chat_tokens"), s->specials};
    json_t *extra = json_object_get(s->tokenizer_config, "extra_special_tokens"), *value;
    const char *key;
    add_token(s, "bos_token", s->choice->no_bos ? "" : NULL);
    for (size_t c = 0; c < ARRAY_LEN(configs); c++)
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            add_token(s, names[i], token_text(json_object_get(configs[c], names[i])));
    json_object_foreach(extra, key, value)
    {
        if (s->own.n_tokens < CHAT_TOKENS)
            add_token(s, key, token_text(value));
    }
}

/* Drops templates that the interpreter does not know, and reports why. */
static void drop_unknown(struct source_search *s, struct chat_report *report)
{
    struct chat kept = {0};
    for (size_t i = 0; i < s->own.n_jinja; i++) {
        struct jinja_template *template;
        struct err err;
        const struct chat_named *one = &s->own.jinja[i];
        if (jinja_parse(&template, one->text, strlen(one->text), "chat template", &err) == 0) {
            kept.jinja[kept.n_jinja++] = *one;
            jinja_free(template);
            continue;
        }
        if (strcmp(one->name, "default") == 0)
            report->refused = err;
        else
            (void)err_set(&report->others, "its template \"%.60s\" is not stored (%.300s)", one->name,
                          err.text);
        free(one->name);
        free(one->text);
    }
    memcpy(s->own.jinja, kept.jinja, sizeof kept.jinja);
    s->own.n_jinja = kept.n_jinja;
}

/* Replaces `token`, the default text of BOS or EOS, by that in tokenizer_config.json, if any. */
static void take_named(struct source_search *s, const char *key, struct buf *token)
{
    const char *text = token_text(json_object_get(s->tokenizer_config, key));
    if (!text)
        return;
    buf_clear(token);
    TRY(s, buf_add(token, text, strlen(text), s->err));
}

/* True if the chat template itself writes BOS, or there is no template. */
static bool writes_start(const struct source_search *s)
{
    const char *text = s->chat_template.data;
    const size_t len = s->chat_template.size;
    return !text || memmem(text, len, "bos_token", strlen("bos_token")) ||
           (s->bos.len && memmem(text, len, s->bos.data, s->bos.len));
}

static void find_tokens(struct source_search *s)
{
    if (TRY(s, chat_default_tokens(s->tok, s->config, &s->bos, &s->eos, s->err)))
        return;
    if (s->chat_template.data)
        take_named(s, "bos_token", &s->bos);
    take_named(s, "eos_token", &s->eos);
    if (s->choice->no_bos || !writes_start(s))
        buf_clear(&s->bos);
}

/* The format that was chosen, or that of the template; true: there is one. */
static bool find_format(struct source_search *s, struct chat *chat)
{
    int found = CHAT_NONE;
    if (s->choice->name && !chosen_jinja(s))
        found = chat_open(chat, s->choice->models_dir, s->choice->name, s->err) < 0 ? -1 : CHAT_FOUND;
    else if (s->choice->name || s->chat_template.data)
        found = chat_find(chat, s->choice->models_dir, s->chat_template.data, s->chat_template.size,
                          s->err);
    s->failed = found < 0;
    return found == CHAT_FOUND;
}

static void write_all(struct source_search *s, struct buf *text, struct chat_report *report)
{
    struct chat chat = {0};
    const bool found = !s->failed && find_format(s, &chat);
    find_tokens(s);
    drop_unknown(s, report);
    struct chat own = s->own;                  /* borrows its texts */
    if (s->choice->name && !chosen_jinja(s)) { /* the chosen format is used */
        own.n_jinja = 0;
        *report->refused.text = *report->others.text = 0;
    }
    sampling_of_source(s->source, &own.sampling, &report->ignored);
    own.prompts = json_object_get(s->source->json[SOURCE_EMBEDDING], "prompts");
    if (chosen_jinja(s) && *report->refused.text)
        TRY(s, err_set(s->err, "%s: %.300s", s->choice->name, report->refused.text));
    report->no_format = s->chat_template.data && !found && !s->own.n_jinja;
    TRY(s, chat_set_tokens(&chat, &s->bos, &s->eos, s->err));
    TRY(s, chat_write(&chat, text, s->err));
    TRY(s, chat_write(&own, text, s->err));
    chat_release(&chat);
}

int chat_of_source(const struct weight_source *source, const struct chat_choice *choice,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   struct chat_report *report, struct err *err)
{
    struct source_search s = {.source = source, .choice = choice, .config = config, .err = err};
    *report = (struct chat_report){0};
    s.tokenizer_config = parse_text(&s, SOURCE_TOKENIZER_CONFIG);
    s.template_config = parse_text(&s, SOURCE_CHAT_JSON);
    s.folder = parse_text(&s, SOURCE_CHAT_FOLDER);
    s.specials = parse_text(&s, SOURCE_SPECIAL_TOKENS);
    find_templates(&s);
    find_named_tokens(&s);
    if (!TRY(&s, tokenizer_open(&s.tok, tokenizer->data, tokenizer->len, err)))
        write_all(&s, text, report);
    tokenizer_free(s.tok);
    json_decref(s.tokenizer_config);
    json_decref(s.template_config);
    json_decref(s.folder);
    json_decref(s.specials);
    chat_release(&s.own);
    buf_release(&s.bos);
    buf_release(&s.eos);
    return s.failed ? -1 : 0;
}
