/* Formats of tool calls, and answers: the input is a format up to the first zero byte, then an answer. Events of an answer are
 * the same in one piece and in pieces of one to eight bytes; arguments of complete calls are objects. */
#include <stdlib.h>
#include <string.h>

#include "text/tools/tool_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":"
    "{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}}}}},{\"name\":\"now\"}]";

struct heard {
    struct buf text, reasoning, calls, arguments;
    bool in_call;
};

static void add(struct buf *to, const char *text, size_t len)
{
    struct err err;
    if (buf_add(to, text, len, &err) < 0)
        abort();
}

static int hear(void *arg, const struct tool_event *e, struct err *err)
{
    struct heard *h = arg;
    json_t *value;
    const bool of_call = e->kind >= TOOL_EVENT_CALL;
    (void)err;
    if (h->in_call != (of_call && e->kind != TOOL_EVENT_CALL))
        abort();
    h->in_call = e->kind == TOOL_EVENT_CALL || e->kind == TOOL_EVENT_ARGUMENTS;
    switch (e->kind) {
    case TOOL_EVENT_TEXT:
    case TOOL_EVENT_REASONING:
        add(e->kind == TOOL_EVENT_TEXT ? &h->text : &h->reasoning, e->text, e->len);
        break;
    case TOOL_EVENT_ARGUMENTS: add(&h->arguments, e->text, e->len); break;
    case TOOL_EVENT_END:
        /* jansson has no numbers beyond its range, and wants valid UTF-8 */
        value = json_loadb(buf_text(&h->arguments), h->arguments.len,
                           JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        if (*buf_text(&h->arguments) != '{' || (value && !json_is_object(value)) || !*e->name ||
            !*e->id)
            abort();
        json_decref(value);
        add(&h->calls, e->name, strlen(e->name) + 1);
        add(&h->calls, e->id, strlen(e->id) + 1);
        add(&h->calls, buf_text(&h->arguments), h->arguments.len + 1);
        buf_clear(&h->arguments);
        break;
    case TOOL_EVENT_CALL:
    case TOOL_EVENT_VOID: buf_clear(&h->arguments); break;
    }
    return 0;
}

/* Reads an answer in pieces of `most` bytes; 0: in one. */
static struct heard listen(const struct tool_format *format, const json_t *tools, const char *text,
                           size_t len, size_t most, bool truncated)
{
    struct heard h = {0};
    struct err err;
    struct tool_parser parser = {.format = format, .tools = tools, .event = hear, .arg = &h};
    for (size_t at = 0, n; at < len; at += n) {
        n = most ? size_min(most, len - at) : len;
        if (tool_parser_add(&parser, text + at, n, &err) < 0)
            abort();
    }
    if (tool_parser_end(&parser, truncated, &err) < 0 || h.in_call)
        abort();
    tool_parser_release(&parser);
    return h;
}

static void compare(const struct buf *a, const struct buf *b)
{
    if (a->len != b->len || (a->len && memcmp(a->data, b->data, a->len) != 0))
        abort();
}

static void forget(struct heard *h)
{
    buf_release(&h->text);
    buf_release(&h->reasoning);
    buf_release(&h->calls);
    buf_release(&h->arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools;
    struct tool_format format;
    struct err err;
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!tools)
        tools = json_loads(tools_json, 0, NULL);
    if (!cut || tool_format_parse(&format, (const char *)data, (size_t)(cut - data), "fuzz", &err) < 0)
        return 0;
    const char *text = (const char *)cut + 1;
    const size_t len = size - (size_t)(cut - data) - 1;
    for (int truncated = 0; truncated < 2; truncated++) {
        struct heard whole = listen(&format, tools, text, len, 0, truncated);
        for (size_t most = 1; most <= 8; most += most) {
            struct heard other = listen(&format, tools, text, len, most, truncated);
            compare(&whole.text, &other.text);
            compare(&whole.reasoning, &other.reasoning);
            compare(&whole.calls, &other.calls);
            forget(&other);
        }
        forget(&whole);
    }
    tool_format_release(&format);
    return 0;
}
