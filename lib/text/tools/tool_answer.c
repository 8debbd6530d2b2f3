/* Collects the events of an answer. */
#include "text/tools/tool_answer.h"

/* A call as an object of OpenAI's form; `arguments` is its JSON. NULL: out of memory. */
static json_t *call_json(const char *id, const char *name, const char *arguments, size_t len,
                         struct err *err)
{
    return json_or_null(json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", json_text(id, strlen(id)), "type",
                                  "function", "function", "name", json_text(name, strlen(name)),
                                  "arguments", json_text(arguments, len)),
                        0, err);
}

/* Adds reasoning to where it belongs. */
static int add_reasoning(struct tool_answer *c, const struct tool_event *event, struct err *err)
{
    if (c->hides_reasoning)
        return 0;
    if (!c->before_reasoning)
        return buf_add(&c->reasoning, event->text, event->len, err);
    if (!c->in_reasoning && buf_addf(&c->content, err, "%s\n", c->before_reasoning) < 0)
        return -1;
    c->in_reasoning = true;
    return buf_add(&c->content, event->text, event->len, err);
}

/* Ends reasoning that is content, before what follows. */
static int leave_reasoning(struct tool_answer *c, struct err *err)
{
    const bool was_in = c->in_reasoning;
    c->in_reasoning = false;
    return was_in ? buf_addf(&c->content, err, "\n%s\n\n", c->after_reasoning) : 0;
}

static int collect(void *arg, const struct tool_event *event, struct err *err)
{
    struct tool_answer *c = arg;
    if (event->kind != TOOL_EVENT_REASONING && leave_reasoning(c, err) < 0)
        return -1;
    switch (event->kind) {
    case TOOL_EVENT_TEXT: return buf_add(&c->content, event->text, event->len, err);
    case TOOL_EVENT_REASONING: return add_reasoning(c, event, err);
    case TOOL_EVENT_ARGUMENTS: return buf_add(&c->arguments, event->text, event->len, err);
    case TOOL_EVENT_CALL:
    case TOOL_EVENT_VOID: buf_clear(&c->arguments); return 0;
    case TOOL_EVENT_END: break;
    }
    if (!c->calls && !(c->calls = json_array()))
        return err_no_memory(err, "tool calls");
    return json_push(c->calls,
                     call_json(event->id, event->name, buf_text(&c->arguments), c->arguments.len, err),
                     err);
}

int tool_answer_begin(struct tool_answer *answer, const struct tool_format *format, const json_t *tools,
                      uint64_t seed, struct slice prompt, struct err *err)
{
    *answer = (struct tool_answer){.parser = {.format = format,
                                              .tools = tools,
                                              .no_calls = !json_array_size(tools),
                                              .seed = seed,
                                              .event = collect,
                                              .arg = answer}};
    return tool_parser_begin(&answer->parser, prompt.data, prompt.size, err);
}

int tool_answer_add(struct tool_answer *answer, struct slice text, struct err *err)
{
    return tool_parser_add(&answer->parser, text.data, text.size, err);
}

int tool_answer_end(struct tool_answer *answer, bool truncated, struct err *err)
{
    return tool_parser_end(&answer->parser, truncated, err) < 0 ? -1 : leave_reasoning(answer, err);
}

void tool_answer_release(struct tool_answer *answer)
{
    tool_parser_release(&answer->parser);
    buf_release(&answer->arguments);
    buf_release(&answer->content);
    buf_release(&answer->reasoning);
    json_decref(answer->calls);
    *answer = (struct tool_answer){0};
}
