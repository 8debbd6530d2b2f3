/* Detects the chat format from a source's chat template, and finds its BOS and EOS tokens. */
#include "model/convert/chat_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/chat_registry.h"
#include "model/convert/sampling_source.h"
#include "text/jinja/jinja.h"

struct source_search {
    const struct weight_source *source;
    const struct chat_choice *choice;
    const struct config *config;
    json_t *tokenizer_config; /* tokenizer_config.json, or NULL */
    json_t *template_config;  /* chat_template.json, or NULL */
    json_t *folder;           /* additional_chat_templates, in the form of that file, or NULL */
    json_t *specials;         /* special_tokens_map.json, or NULL */
    struct chat own;          /* the model's templates and special tokens */
    struct tokenizer *tok;
    struct slice chat_template; /* the default one; {NULL, 0}: none */
    struct buf bos, eos;
};

struct slice text_of_source(const struct weight_source *source, enum source_text which)
{
    const struct source_bytes text = source->text[which];
    return (struct slice){text.data, text.size};
}

/* Parses a JSON text of the source; NULL if it has none. */
static int parse_text(const struct source_search *s, enum source_text which, json_t **json,
                      struct err *err)
{
    const struct slice text = text_of_source(s->source, which);
    *json = NULL;
    return text.data ? json_parse(text.data, text.size, s->source->path, json, err) : 0;
}

static int add_jinja(struct source_search *s, const char *name, const char *text, size_t len,
                     struct err *err)
{
    char *copy = strndup(text, len);
    const int rc =
        copy ? chat_add_jinja(&s->own, name, copy, err) : err_no_memory(err, "a chat template");
    free(copy);
    return rc < 0 ? err_prefix(err, "%s", s->source->path) : 0;
}

/* Whether a Jinja template was chosen, by path. */
static bool chosen_jinja(const struct source_search *s)
{
    return s->choice->name && chat_is_jinja_path(s->choice->name);
}

static int add_chosen(struct source_search *s, struct err *err)
{
    struct file_map map;
    if (file_map(&map, s->choice->name, err) < 0)
        return -1;
    const int rc = add_jinja(s, "default", map.data ? (const char *)map.data : "", map.size, err);
    file_unmap(&map);
    return rc;
}

/* Adds the templates of a "chat_template", which is a string, a list of named strings, or an object of strings. */
static int add_listed(struct source_search *s, json_t *text, struct err *err)
{
    const char *key;
    json_t *one;
    size_t i;
    int rc = 0;
    if (json_is_string(text))
        rc = add_jinja(s, "default", json_string_value(text), json_string_length(text), err);
    json_array_foreach(text, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        const json_t *of = json_object_get(one, "template");
        if (rc == 0 && name && json_is_string(of))
            rc = add_jinja(s, name, json_string_value(of), json_string_length(of), err);
    }
    json_object_foreach(text, key, one)
    {
        if (rc == 0 && json_is_string(one))
            rc = add_jinja(s, key, json_string_value(one), json_string_length(one), err);
    }
    return rc;
}

/* Collects the chat templates. Of a name, the first counts: a chosen one, those in files of their own,
 * then those inside of configurations, whose further ones files replace, as in transformers. */
static int find_templates(struct source_search *s, struct err *err)
{
    const struct slice file = text_of_source(s->source, SOURCE_CHAT_TEMPLATE);
    const json_t *const configs[] = {s->folder, s->tokenizer_config, s->template_config};
    int rc = chosen_jinja(s) ? add_chosen(s, err) : 0;
    if (rc == 0 && file.data)
        rc = add_jinja(s, "default", file.data, file.size, err);
    for (size_t c = 0; c < ARRAY_LEN(configs) && rc == 0; c++)
        if (c == 0 || !(file.data || s->folder) || !chat_jinja(&s->own, "default"))
            rc = add_listed(s, json_object_get(configs[c], "chat_template"), err);
    const char *text = chat_jinja(&s->own, "default");
    s->chat_template = (struct slice){text, text ? strlen(text) : 0};
    return rc;
}

/* The text of a token: a string, or an object with "content". */
static const char *token_text(const json_t *value)
{
    const char *text = json_string_value(value);
    return text ? text : json_string_value(json_object_get(value, "content"));
}

/* Collects the special tokens that templates know by name. */
static int find_named_tokens(struct source_search *s, struct err *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    const json_t *const configs[] = {s->tokenizer_config,
                                     json_object_get(s->tokenizer_config, "chat_tokens"), s->specials};
    json_t *extra = json_object_get(s->tokenizer_config, "extra_special_tokens"), *value;
    const char *key;
    int rc = s->choice->no_bos ? chat_add_token(&s->own, "bos_token", "", err) : 0;
    for (size_t c = 0; c < ARRAY_LEN(configs); c++)
        for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++) {
            const char *text = token_text(json_object_get(configs[c], names[i]));
            rc = text ? chat_add_token(&s->own, names[i], text, err) : 0;
        }
    json_object_foreach(extra, key, value)
    {
        const char *text = token_text(value);
        if (rc == 0 && text && s->own.n_tokens < CHAT_TOKENS)
            rc = chat_add_token(&s->own, key, text, err);
    }
    return rc < 0 ? err_prefix(err, "%s", s->source->path) : 0;
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

/* The text of "bos_token" or "eos_token", which is a string or an object with "content". */
static const char *named_token(const struct source_search *s, const char *key)
{
    return token_text(json_object_get(s->tokenizer_config, key));
}

/* Replaces `token`, the default text of BOS or EOS, by that in tokenizer_config.json, if any. */
static int take_named(const struct source_search *s, const char *key, struct buf *token,
                      struct err *err)
{
    const char *text = named_token(s, key);
    if (!text)
        return 0;
    buf_clear(token);
    return buf_add(token, text, strlen(text), err);
}

/* True if the chat template itself writes BOS, or there is no template. */
static bool writes_start(const struct source_search *s)
{
    const char *text = s->chat_template.data;
    const size_t len = s->chat_template.size;
    return !text || memmem(text, len, "bos_token", strlen("bos_token")) ||
           (s->bos.len && memmem(text, len, s->bos.data, s->bos.len));
}

static int find_tokens(struct source_search *s, struct err *err)
{
    if (chat_default_tokens(s->tok, s->config, &s->bos, &s->eos, err) < 0 ||
        (s->chat_template.data && take_named(s, "bos_token", &s->bos, err) < 0) ||
        take_named(s, "eos_token", &s->eos, err) < 0)
        return -1;
    if (s->choice->no_bos || !writes_start(s))
        buf_clear(&s->bos);
    return 0;
}

static int find_format(const struct source_search *s, struct chat *chat, struct err *err)
{
    if (s->choice->name && !chosen_jinja(s))
        return chat_open(chat, s->choice->models_dir, s->choice->name, err) < 0 ? -1 : CHAT_FOUND;
    *chat = (struct chat){0};
    return chat_find(chat, s->choice->models_dir, s->chat_template.data, s->chat_template.size, err);
}

static int write_all(struct source_search *s, struct buf *text, struct chat_report *report,
                     struct err *err)
{
    struct chat chat;
    const int found = s->choice->name || s->chat_template.data ? find_format(s, &chat, err)
                                                               : (chat = (struct chat){0}, CHAT_NONE);
    int rc = found < 0 ? -1 : 0;
    if (rc == 0 && find_tokens(s, err) < 0)
        rc = -1;
    drop_unknown(s, report);
    struct chat own = s->own;                  /* borrows its texts */
    if (s->choice->name && !chosen_jinja(s)) { /* the chosen format is used */
        own.n_jinja = 0;
        *report->refused.text = *report->others.text = 0;
    }
    sampling_of_source(s->source, &own.sampling, &report->ignored);
    if (rc == 0 && chosen_jinja(s) && *report->refused.text)
        rc = err_set(err, "%s: %.300s", s->choice->name, report->refused.text);
    report->no_format = s->chat_template.data && found == CHAT_NONE && !s->own.n_jinja;
    if (rc == 0)
        rc = chat_set_tokens(&chat, &s->bos, &s->eos, err);
    if (rc == 0)
        rc = chat_write(&chat, text, err);
    if (rc == 0)
        rc = chat_write(&own, text, err);
    chat_release(&chat);
    return rc;
}

int chat_of_source(const struct weight_source *source, const struct chat_choice *choice,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   struct chat_report *report, struct err *err)
{
    struct source_search s = {.source = source, .choice = choice, .config = config};
    int rc = -1;
    *report = (struct chat_report){0};
    if (parse_text(&s, SOURCE_TOKENIZER_CONFIG, &s.tokenizer_config, err) == 0 &&
        parse_text(&s, SOURCE_CHAT_JSON, &s.template_config, err) == 0 &&
        parse_text(&s, SOURCE_CHAT_FOLDER, &s.folder, err) == 0 &&
        parse_text(&s, SOURCE_SPECIAL_TOKENS, &s.specials, err) == 0 && find_templates(&s, err) == 0 &&
        find_named_tokens(&s, err) == 0 &&
        tokenizer_open(&s.tok, tokenizer->data, tokenizer->len, err) == 0)
        rc = write_all(&s, text, report, err);
    tokenizer_free(s.tok);
    json_decref(s.tokenizer_config);
    json_decref(s.template_config);
    json_decref(s.folder);
    json_decref(s.specials);
    chat_release(&s.own);
    buf_release(&s.bos);
    buf_release(&s.eos);
    return rc;
}
