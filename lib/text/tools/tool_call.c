/* Events of calls. */
#include "text/tools/tool_call.h"

#include "base/hash.h"

int tool_put(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t len,
             struct err *err)
{
    const struct tool_event event = {.kind = kind,
                                     .text = text,
                                     .len = len,
                                     .index = p->n_calls,
                                     .name = buf_text(&p->name),
                                     .id = buf_text(&p->id)};
    return p->event(p->arg, &event, err);
}

/* The next number of SplitMix64. */
static uint64_t next_bits(uint64_t state) { return hash_mix64(state + 0x9e3779b97f4a7c15u); }

/* An id that no other call has: letters and digits from the seed and the call's number. */
static int make_id(struct tool_parser *p, struct err *err)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const size_t n = p->format->id_chars ? p->format->id_chars : 24;
    uint64_t state = next_bits(p->seed) ^ p->n_calls;
    int rc = p->format->id_chars ? 0 : buf_addf(&p->id, err, "call_");
    for (size_t i = 0; i < n && rc == 0; i++) {
        state = next_bits(state);
        rc = buf_add(&p->id, &letters[state % (sizeof letters - 1)], 1, err);
    }
    return rc;
}

const json_t *tool_function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(tool_function_of(tool), "name"));
}

const json_t *tool_function(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        const char *has = tool_name(tool);
        if (has && strcmp(has, name) == 0)
            return tool_function_of(tool);
    }
    return NULL;
}

int tool_begin_call(struct tool_parser *p, struct err *err)
{
    if (p->begun || !p->name.len ||
        (p->pattern->use == TOOL_CALLS_MAYBE && !tool_function(p->tools, buf_text(&p->name))))
        return TOOL_NO_CALL;
    if (!p->id.len && make_id(p, err) < 0)
        return -1;
    p->begun = true;
    return tool_put(p, TOOL_EVENT_CALL, NULL, 0, err) < 0 ? -1 : 0;
}

int tool_put_arguments(struct tool_parser *p, struct err *err)
{
    int rc = 0;
    if (p->begun && p->arguments.len) {
        rc = tool_put(p, TOOL_EVENT_ARGUMENTS, p->arguments.data, p->arguments.len, err);
        buf_clear(&p->arguments);
    }
    return rc;
}

void tool_forget_call(struct tool_parser *p)
{
    p->begun = p->given_arguments = false;
    buf_clear(&p->name);
    buf_clear(&p->id);
    buf_clear(&p->arguments);
    buf_clear(&p->scratch);
}

int tool_end_call(struct tool_parser *p, struct err *err)
{
    const int rc = tool_put(p, TOOL_EVENT_END, NULL, 0, err);
    p->n_calls++;
    p->start = p->at;
    tool_forget_call(p);
    return rc;
}
