/* Renders conversations with a model's Jinja template. */
#include "serve/chat/chat_template.h"

#include <ctype.h>
#include <string.h>

#include "serve/chat/message_parts.h"
#include "serve/chat/template_messages.h"
#include "text/utf8.h"

/* An answer that is replaced by one that was generated; no template changes or drops it. */
#define ANSWER "Zg7answer4Qx"

/* Where a message ends that is to be continued. A template that drops the blank strips messages. */
#define OPEN_END "Zg7end4Qx "

int chat_template_open(struct chat_template *t, const char *text, const char *tools, const char *name,
                       json_t *tokens, struct err *err)
{
    t->reads_parts = template_reads_parts(text);
    t->tokens = tokens;
    int rc =
        tokens ? jinja_parse(&t->plain, text, strlen(text), name, err) : err_no_memory(err, "%s", name);
    if (rc == 0 && tools)
        rc = jinja_parse(&t->with_tools, tools, strlen(tools), name, err);
    if (rc == 0)
        rc = template_probe(t->plain, t->tokens, &t->now, &t->traits[0], err);
    if (rc == 0 && tools)
        rc = template_probe(t->with_tools, t->tokens, &t->now, &t->traits[1], err);
    return rc;
}

void chat_template_close(struct chat_template *t)
{
    jinja_free(t->plain);
    jinja_free(t->with_tools);
    json_decref(t->tokens);
    *t = (struct chat_template){.now = t->now};
}

const struct jinja_template *chat_template_of(const struct chat_template *t,
                                              const struct conversation *c,
                                              const struct template_traits **traits)
{
    const bool tools = c->tools && t->with_tools;
    *traits = &t->traits[tools];
    return tools ? t->with_tools : t->plain;
}

static int add_messages(const struct chat_template *t, const struct conversation *c, size_t from,
                        json_t *list, struct err *err)
{
    const struct template_traits *traits;
    const struct jinja_template *template = chat_template_of(t, c, &traits);
    return template_messages(template, traits, c->messages, from, list, err);
}

static json_t *or_null(const json_t *value)
{
    return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

/* Renders with `messages`, whose reference is taken over, in place of the conversation's; all are closed. */
static int render_closed(const struct chat_template *t, const struct conversation *c, json_t *messages,
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
    const struct template_traits *unused;
    if (rc == 0)
        rc = jinja_render(chat_template_of(t, c, &unused), &input, NULL, out, err);
    json_decref(variables);
    return rc;
}

/* Appends the bytes [start, end) of a rendered text; *nth, at first 0, is a range of content that ends behind the last
 * part. */
static int add_part(const struct marked_text *text, size_t start, size_t end, size_t *nth,
                    struct marked_text *out, struct err *err)
{
    int rc = 0;
    while (*nth < text->n_content && text->content[*nth].end <= start)
        ++*nth;
    for (size_t i = *nth; i < text->n_content && text->content[i].start < end && rc == 0; i++) {
        const size_t from = size_max(text->content[i].start, start),
                     to = size_min(text->content[i].end, end);
        if (to <= start)
            continue;
        rc = marked_add(out, text->text.data + start, from - start, err);
        if (rc == 0)
            rc = marked_add_content(out, text->text.data + from, to - from, err);
        start = to;
    }
    return rc == 0 ? marked_add(out, text->text.data + start, end - start, err) : rc;
}

/* ---- messages that are continued ---- */

/* A text with the mark behind it. */
static json_t *opened(const json_t *text, struct err *err)
{
    struct buf open = {0};
    json_t *string = NULL;
    if (buf_add(&open, json_string_value(text), json_string_length(text), err) == 0 &&
        buf_add(&open, OPEN_END, strlen(OPEN_END), err) == 0)
        string = json_stringn(open.data, open.len);
    buf_release(&open);
    return string;
}

/* Copies a list of parts, with the mark behind the text of one. */
static json_t *opened_parts(json_t *parts, size_t nth, struct err *err)
{
    json_t *list = json_array(), *part = json_object(), *old = json_array_get(parts, nth);
    int rc = json_array_extend(list, parts) < 0 || json_object_update(part, old) < 0
                 ? err_no_memory(err, "a message")
                 : json_put(part, "text", opened(json_object_get(old, "text"), err), err);
    if (rc == 0 && json_array_set(list, nth, part) < 0)
        rc = err_no_memory(err, "a message");
    json_decref(part);
    return json_or_null(list, rc, err);
}

/* Puts the mark behind the text that is continued, a message's content or the last text of its parts. *text
 * borrows it from the conversation. */
static int open_last(const struct conversation *c, json_t *message, const json_t **text,
                     struct err *err)
{
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    json_t *content = json_object_get(last, "content"), *open = NULL;
    *text = content;
    for (size_t i = json_array_size(content); i-- > 0 && !open;) {
        *text = json_object_get(json_array_get(content, i), "text");
        if (json_is_string(*text) && !(open = opened_parts(content, i, err)))
            return -1;
    }
    if (!json_is_string(*text))
        return err_set(
            err, "\"messages\": the content of the last entry is %s: there is no text to continue",
            json_type_name(content));
    return json_put(message, "content", open ? open : opened(content, err), err);
}

/* Whether a rendered text holds the text that is continued, without white space at its ends. */
static bool holds(const struct marked_text *whole, const json_t *content)
{
    const char *text = json_string_value(content);
    size_t start = 0, end = json_string_length(content);
    while (start < end && isspace((unsigned char)text[start]))
        start++;
    while (end > start && isspace((unsigned char)text[end - 1]))
        end--;
    return start == end || memmem(buf_text(&whole->text), whole->text.len, text + start, end - start);
}

/* The end of a text without the white space before `end`. */
static size_t stripped(const char *text, size_t end)
{
    uint32_t code;
    for (size_t before = end; end; end = before) {
        before = utf8_before(text, end);
        utf8_decode(text + before, &code);
        if (!utf8_is_space(code))
            break;
    }
    return end;
}

/* Appends a rendered text up to the last mark, without marks before it. */
static int add_open(const struct marked_text *whole, const json_t *content, struct marked_text *out,
                    struct err *err)
{
    const size_t word = strlen(OPEN_END) - 1, len = whole->text.len;
    const char *text = buf_text(&whole->text), *mark = memmem(text, len, OPEN_END, word);
    size_t start = 0, nth = 0;
    int rc = 0;
    if (!mark || !holds(whole, content))
        return err_set(err,
                       "the chat template changes the last message, so that it cannot be continued");
    while (mark && rc == 0) {
        const size_t at = (size_t)(mark - text), blank = at + word < len && text[at + word] == ' ';
        const size_t next = at + word + blank;
        mark = memmem(text + next, len - next, OPEN_END, word);
        rc = add_part(whole, start, mark || blank ? at : size_max(start, stripped(text, at)), &nth, out,
                      err);
        start = next;
    }
    return rc;
}

/* Renders with `messages`, whose reference is taken over, in place of the conversation's. */
static int render(const struct chat_template *t, const struct conversation *c, json_t *messages,
                  bool answer, struct marked_text *out, struct err *err)
{
    struct marked_text whole = {0};
    if (!c->open_end)
        return render_closed(t, c, messages, answer, out, err);
    const json_t *text;
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    int rc = open_last(c, last, &text, err);
    if (rc == 0)
        rc = render_closed(t, c, json_incref(messages), answer, &whole, err);
    if (rc == 0)
        rc = add_open(&whole, text, out, err);
    json_decref(messages);
    marked_release(&whole);
    return rc;
}

int chat_template_render(const struct chat_template *t, const struct conversation *c,
                         struct marked_text *out, struct err *err)
{
    json_t *messages = json_array();
    if (!messages || add_messages(t, c, 0, messages, err) < 0) {
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
    return add_part(text, at, text->text.len, &(size_t){0}, out, err);
}

int chat_template_continue(const struct chat_template *t, const struct conversation *c,
                           struct marked_text *out, struct err *err)
{
    const json_t *first = json_array_get(c->messages, 0);
    const bool system = !t->system_anywhere && is_system(first);
    struct marked_text text = {0};
    json_t *messages = begun(system ? first : NULL, err);
    if (!messages)
        return -1;
    if (add_messages(t, c, system, messages, err) < 0) {
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
