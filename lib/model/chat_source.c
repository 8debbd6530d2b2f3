/* Which chat format a source's template is of, and what its tokens are called. */
#include "model/chat_source.h"

#include <string.h>

#include "model/chats.h"

struct search {
    const struct weight_source *source;
    const struct chat_wish *wish;
    const struct config *config;
    json_t *says; /* tokenizer_config.json, or NULL */
    struct tokenizer *tok;
    struct slice chat_template; /* {NULL, 0}: there is none */
    struct buf bos, eos;
};

struct slice text_of_source(const struct weight_source *source, enum source_text which)
{
    const struct source_bytes text = source->format->tokenizer(source, which);
    return (struct slice){text.data, text.size};
}

/* A file of its own, or what tokenizer_config.json says: a text, or a list of texts with names. */
static struct slice find_template(const struct search *s)
{
    const struct slice file = text_of_source(s->source, SOURCE_CHAT_TEMPLATE);
    const json_t *text = json_object_get(s->says, "chat_template"), *one;
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

/* "bos_token" and "eos_token": a text, or an object with its content. */
static const char *named_token(const struct search *s, const char *key)
{
    const json_t *value = json_object_get(s->says, key);
    const char *text = json_string_value(value);
    return text ? text : json_string_value(json_object_get(value, "content"));
}

/* In place of the usual token, if the source names one. */
static int take_named(const struct search *s, const char *key, struct buf *token, struct err *err)
{
    const char *text = named_token(s, key);
    if (!text)
        return 0;
    buf_clear(token);
    return buf_add(token, text, strlen(text), err);
}

/* A template writes the start token, or does not. */
static bool writes_start(const struct search *s)
{
    const char *text = s->chat_template.data;
    const size_t len = s->chat_template.size;
    return !text || memmem(text, len, "bos_token", strlen("bos_token")) ||
           (s->bos.len && memmem(text, len, s->bos.data, s->bos.len));
}

static int find_tokens(struct search *s, struct err *err)
{
    if (chat_usual_tokens(s->tok, s->config, &s->bos, &s->eos, err) < 0 ||
        (s->chat_template.data && take_named(s, "bos_token", &s->bos, err) < 0) ||
        take_named(s, "eos_token", &s->eos, err) < 0)
        return -1;
    if (s->wish->no_start || !writes_start(s))
        buf_clear(&s->bos);
    return 0;
}

static int find_format(const struct search *s, struct chat *chat, struct err *err)
{
    if (s->wish->name)
        return chat_open(chat, s->wish->models_dir, s->wish->name, err) < 0 ? -1 : CHAT_FOUND;
    *chat = (struct chat){0};
    return chat_find(chat, s->wish->models_dir, s->chat_template.data, s->chat_template.size, err);
}

static int write_format(struct search *s, struct buf *text, bool *unknown, struct err *err)
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

int chat_of_source(const struct weight_source *source, const struct chat_wish *wish,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   bool *unknown, struct err *err)
{
    struct search s = {.source = source, .wish = wish, .config = config};
    const struct slice says = text_of_source(source, SOURCE_TOKENIZER_CONFIG);
    int rc = -1;
    *unknown = false;
    if (says.data && json_parse(says.data, says.size, source->path, &s.says, err) < 0)
        goto out;
    s.chat_template = find_template(&s);
    if (!wish->name && !s.chat_template.data) {
        rc = 0;
        goto out;
    }
    if (tokenizer_open(&s.tok, tokenizer->data, tokenizer->len, err) == 0)
        rc = write_format(&s, text, unknown, err);
out:
    tokenizer_free(s.tok);
    json_decref(s.says);
    buf_release(&s.bos);
    buf_release(&s.eos);
    return rc;
}
