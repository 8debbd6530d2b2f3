/* Detects the chat format from a source's chat template, and finds its BOS and EOS tokens. */
#include "model/convert/chat_source.h"

#include <string.h>

#include "model/chat_registry.h"

struct source_search {
    const struct weight_source *source;
    const struct chat_choice *choice;
    const struct config *config;
    json_t *tokenizer_config; /* tokenizer_config.json, or NULL */
    struct tokenizer *tok;
    struct slice chat_template; /* {NULL, 0}: none */
    struct buf bos, eos;
};

struct slice text_of_source(const struct weight_source *source, enum source_text which)
{
    const struct source_bytes text = source->format->tokenizer(source, which);
    return (struct slice){text.data, text.size};
}

/* Finds the chat template: chat_template.jinja, or "chat_template" of tokenizer_config.json,
 * which is a string or a list of named strings. */
static struct slice find_template(const struct source_search *s)
{
    const struct slice file = text_of_source(s->source, SOURCE_CHAT_TEMPLATE);
    const json_t *text = json_object_get(s->tokenizer_config, "chat_template"), *one;
    size_t i;
    if (file.data)
        return file;
    json_array_foreach(text, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            text = json_object_get(one, "template");
    }
    return (struct slice){json_string_value(text), json_string_length(text)};
}

/* The text of "bos_token" or "eos_token", which is a string or an object with "content". */
static const char *named_token(const struct source_search *s, const char *key)
{
    const json_t *value = json_object_get(s->tokenizer_config, key);
    const char *text = json_string_value(value);
    return text ? text : json_string_value(json_object_get(value, "content"));
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
    if (s->choice->name)
        return chat_open(chat, s->choice->models_dir, s->choice->name, err) < 0 ? -1 : CHAT_FOUND;
    *chat = (struct chat){0};
    return chat_find(chat, s->choice->models_dir, s->chat_template.data, s->chat_template.size, err);
}

static int write_format(struct source_search *s, struct buf *text, bool *unknown, struct err *err)
{
    struct chat chat;
    const int found = find_format(s, &chat, err);
    int rc = found < 0 ? -1 : 0;
    if (found == CHAT_NONE)
        *unknown = true;
    if (found == CHAT_FOUND && (rc = find_tokens(s, err)) == 0)
        rc = chat_write(&chat, buf_text(&s->bos), buf_text(&s->eos), text, err);
    chat_release(&chat);
    return rc;
}

int chat_of_source(const struct weight_source *source, const struct chat_choice *choice,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   bool *unknown, struct err *err)
{
    struct source_search s = {.source = source, .choice = choice, .config = config};
    const struct slice tokenizer_config = text_of_source(source, SOURCE_TOKENIZER_CONFIG);
    int rc = -1;
    *unknown = false;
    if (tokenizer_config.data && json_parse(tokenizer_config.data, tokenizer_config.size, source->path,
                                            &s.tokenizer_config, err) < 0)
        goto out;
    s.chat_template = find_template(&s);
    if (!choice->name && !s.chat_template.data) {
        rc = 0;
        goto out;
    }
    if (tokenizer_open(&s.tok, tokenizer->data, tokenizer->len, err) == 0)
        rc = write_format(&s, text, unknown, err);
out:
    tokenizer_free(s.tok);
    json_decref(s.tokenizer_config);
    buf_release(&s.bos);
    buf_release(&s.eos);
    return rc;
}
