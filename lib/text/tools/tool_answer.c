/* Collects the events of an answer. */
#include "text/tools/tool_answer.h"

struct collector {
    struct tool_answer *answer;
    struct buf arguments; /* of the call that is not complete */
};

json_t *tool_call_json(const char *id, const char *name, const char *arguments, size_t len,
                       struct err *err)
{
    return json_or_null(json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", json_text(id, strlen(id)), "type",
                                  "function", "function", "name", json_text(name, strlen(name)),
                                  "arguments", json_text(arguments, len)),
                        0, err);
}

static int collect(void *arg, const struct tool_event *event, struct err *err)
{
    struct collector *c = arg;
    switch (event->kind) {
    case TOOL_EVENT_TEXT: return buf_add(&c->answer->content, event->text, event->len, err);
    case TOOL_EVENT_REASONING: return buf_add(&c->answer->reasoning, event->text, event->len, err);
    case TOOL_EVENT_ARGUMENTS: return buf_add(&c->arguments, event->text, event->len, err);
    case TOOL_EVENT_CALL:
    case TOOL_EVENT_VOID: buf_clear(&c->arguments); return 0;
    case TOOL_EVENT_END: break;
    }
    if (!c->answer->calls && !(c->answer->calls = json_array()))
        return err_no_memory(err, "tool calls");
    return json_push(
        c->answer->calls,
        tool_call_json(event->id, event->name, buf_text(&c->arguments), c->arguments.len, err), err);
}

int tool_answer_read(struct tool_answer *answer, const struct tool_format *format, const json_t *tools,
                     uint64_t seed, struct slice prompt, struct slice text, bool truncated,
                     struct err *err)
{
    struct collector collector = {.answer = answer};
    struct tool_parser parser = {
        .format = format, .tools = tools, .seed = seed, .event = collect, .arg = &collector};
    *answer = (struct tool_answer){0};
    int rc = tool_parser_begin(&parser, prompt.data, prompt.size, err);
    if (rc == 0)
        rc = tool_parser_add(&parser, text.data, text.size, err);
    if (rc == 0)
        rc = tool_parser_end(&parser, truncated, err);
    tool_parser_release(&parser);
    buf_release(&collector.arguments);
    if (rc < 0)
        tool_answer_release(answer);
    return rc;
}

void tool_answer_release(struct tool_answer *answer)
{
    buf_release(&answer->content);
    buf_release(&answer->reasoning);
    json_decref(answer->calls);
    *answer = (struct tool_answer){0};
}
