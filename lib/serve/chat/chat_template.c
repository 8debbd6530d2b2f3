/* Renders conversations with a model's Jinja template. */
#include "serve/chat/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "serve/chat/message_parts.h"

/* An answer that is replaced by one that was generated; no template changes or drops it. */
#define ANSWER "Zg7answer4Qx"

int chat_template_open(struct chat_template *t, const char *text, const char *tools, const char *name,
                       const struct chat *chat, const char *bos, const char *eos, struct err *err)
{
    const struct chat_named defaults[] = {{(char *)(uintptr_t) "bos_token", (char *)(uintptr_t)bos},
                                          {(char *)(uintptr_t) "eos_token", (char *)(uintptr_t)eos}};
    int rc = 0;
    t->reads_parts = template_reads_parts(text);
    t->tokens = json_object();
    for (size_t i = 0; i < ARRAY_LEN(defaults) && rc == 0; i++)
        if (!chat_token(chat, defaults[i].name) && *defaults[i].text)
            rc = json_put(t->tokens, defaults[i].name,
                          json_text(defaults[i].text, strlen(defaults[i].text)), err);
    for (size_t i = 0; i < chat->n_tokens && rc == 0; i++)
        rc = json_put(t->tokens, chat->token[i].name,
                      json_text(chat->token[i].text, strlen(chat->token[i].text)), err);
    if (rc == 0)
        rc = jinja_parse(&t->plain, text, strlen(text), name, err);
    if (rc == 0 && tools)
        rc = jinja_parse(&t->with_tools, tools, strlen(tools), name, err);
    return rc;
}

void chat_template_close(struct chat_template *t)
{
    jinja_free(t->plain);
    jinja_free(t->with_tools);
    json_decref(t->tokens);
    *t = (struct chat_template){.now = t->now};
}

/* A message without members that are null; reasoning has all the names by which templates know it. */
static json_t *message_of(const json_t *message, struct err *err)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *copy = json_object(), *value, *reasoning = NULL;
    const char *key;
    int rc = copy ? 0 : err_no_memory(err, "a message");
    for (size_t i = 0; i < ARRAY_LEN(names) && !reasoning; i++) {
        value = json_object_get(message, names[i]);
        reasoning = value && !json_is_null(value) ? value : NULL;
    }
    if (rc == 0 && reasoning)
        rc = json_put(copy, "thinking", json_incref(reasoning), err);
    json_object_foreach((json_t *)(uintptr_t)message, key, value)
    {
        if (rc == 0 && !json_is_null(value))
            rc = json_put(copy, key, json_incref(value), err);
    }
    if (rc == 0 && reasoning)
        rc = json_put(copy, "reasoning_content", json_incref(reasoning), err);
    return json_or_null(copy, rc, err);
}

static int add_messages(json_t *list, const json_t *messages, size_t from, struct err *err)
{
    for (size_t i = from; i < json_array_size(messages); i++) {
        json_t *message = message_of(json_array_get(messages, i), err);
        if (!message || json_push(list, message, err) < 0)
            return -1;
    }
    return 0;
}

static json_t *or_null(const json_t *value)
{
    return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

/* Renders with `messages`, whose reference is taken over, in place of the conversation's. */
static int render(const struct chat_template *t, const struct conversation *c, json_t *messages,
                  bool answer, struct marked_text *out, struct err *err)
{
    json_t *variables = json_object(), *value;
    const char *key;
    int rc = json_put(variables, "messages", messages, err);
    if (rc == 0)
        rc = json_put(variables, "tools", or_null(c->tools), err);
    if (rc == 0)
        rc = json_put(variables, "documents", or_null(c->documents), err);
    if (rc == 0)
        rc = json_put(variables, "add_generation_prompt", json_boolean(answer), err);
    json_object_foreach((json_t *)(uintptr_t)c->variables, key, value)
    {
        if (rc == 0 && json_object_get(variables, key))
            rc = err_set(err, "\"chat_template_kwargs\" has \"%.60s\", which is set on its own", key);
        if (rc == 0)
            rc = json_put(variables, key, json_incref(value), err);
    }
    const struct jinja_input input = {.trusted = t->tokens, .content = variables, .now = t->now};
    const bool tools = c->tools && t->with_tools;
    if (rc == 0)
        rc = jinja_render(tools ? t->with_tools : t->plain, &input, NULL, out, err);
    json_decref(variables);
    return rc;
}

int chat_template_render(const struct chat_template *t, const struct conversation *c,
                         struct marked_text *out, struct err *err)
{
    json_t *messages = json_array();
    if (!messages || add_messages(messages, c->messages, 0, err) < 0) {
        json_decref(messages);
        return messages ? -1 : err_no_memory(err, "messages");
    }
    if (!json_array_size(messages)) {
        json_decref(messages);
        return err_set(err, "the conversation has no messages");
    }
    return render(t, c, messages, !c->no_answer, out, err);
}

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "system") == 0;
}

/* A conversation that begins with messages of others: a question and the answer that stands for one. */
static json_t *begun(const json_t *system, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "messages");
    if (rc == 0 && system)
        rc = json_push(list, json_incref((json_t *)(uintptr_t)system), err);
    if (rc == 0)
        rc = json_push(list, json_pack("{ssss}", "role", "user", "content", "Hello"), err);
    if (rc == 0)
        rc = json_push(list, json_pack("{ssss}", "role", "assistant", "content", ANSWER), err);
    return json_or_null(list, rc, err);
}

/* Appends what a rendered text has after the answer. */
static int add_after_answer(const struct marked_text *text, struct marked_text *out, struct err *err)
{
    const size_t len = strlen(ANSWER);
    size_t at = SIZE_MAX;
    for (size_t i = 0; i + len <= text->text.len; i++)
        if (memcmp(text->text.data + i, ANSWER, len) == 0)
            at = i + len;
    if (at == SIZE_MAX)
        return err_set(err, "the chat template drops earlier answers, so that a conversation cannot be "
                            "continued");
    int rc = 0;
    for (size_t i = 0; i < text->n_content && rc == 0; i++) {
        const size_t start = size_max(text->content[i].start, at), end = text->content[i].end;
        if (end <= at)
            continue;
        rc = marked_add(out, text->text.data + at, start - at, err);
        if (rc == 0)
            rc = marked_add_content(out, text->text.data + start, end - start, err);
        at = end;
    }
    return rc == 0 ? marked_add(out, text->text.data + at, text->text.len - at, err) : rc;
}

int chat_template_continue(const struct chat_template *t, const struct conversation *c,
                           struct marked_text *out, struct err *err)
{
    const json_t *first = json_array_get(c->messages, 0);
    const bool system = is_system(first);
    struct marked_text text = {0};
    json_t *messages = begun(system ? first : NULL, err);
    if (!messages)
        return -1;
    if (add_messages(messages, c->messages, system, err) < 0) {
        json_decref(messages);
        return -1;
    }
    int rc = render(t, c, messages, !c->no_answer, &text, err);
    if (rc == 0)
        rc = add_after_answer(&text, out, err);
    marked_release(&text);
    return rc;
}

int chat_template_end(const struct chat_template *t, struct buf *text, struct err *err)
{
    const struct conversation none = {0};
    struct marked_text whole = {0}, tail = {0};
    json_t *messages = begun(NULL, err);
    int rc = messages ? render(t, &none, messages, false, &whole, err) : -1;
    if (rc == 0)
        rc = add_after_answer(&whole, &tail, err);
    if (rc == 0)
        rc = buf_add(text, buf_text(&tail.text), tail.text.len, err);
    marked_release(&whole);
    marked_release(&tail);
    return rc;
}
