/* The parts of an answer, as a message of OpenAI's form has them. */
#pragma once

#include "text/tools/tool_parser.h"

struct tool_answer {
    struct buf content, reasoning;
    /* list of {"id", "type": "function", "function": {"name", "arguments"}}: complete ones; NULL:
     * none */
    json_t *calls;
    struct tool_parser parser;
    struct buf arguments; /* of the call that is not complete */
    /* Set after tool_answer_begin(): reasoning is left out; or it is content, between these texts, borrowed, on lines of
     * their own. */
    bool hides_reasoning;
    const char *before_reasoning, *after_reasoning; /* NULL: it is not content */
    bool in_reasoning;
    /* Set after tool_answer_begin(): a constraint makes calls of this pattern valid, if the answer does not end before;
     * NULL: of none. */
    const struct tool_pattern *certain;
};

/* The call that is being read, if it will be valid: the parser has its name and its id, and `arguments` the beginning of
 * its arguments. */
static inline bool tool_answer_in_call(const struct tool_answer *answer)
{
    return answer->certain && answer->parser.begun && answer->parser.pattern == answer->certain;
}

/* Read an answer to a prompt in pieces; the format and the tools are borrowed, and the struct must not move. Without tools
 * there are no calls: they stay text. `truncated`: the model had not ended the answer. tool_answer_release() is called
 * afterwards, also after an error. */
int tool_answer_begin(struct tool_answer *answer, const struct tool_format *format, const json_t *tools,
                      uint64_t seed, struct slice prompt, struct err *err) MUST_USE;
int tool_answer_add(struct tool_answer *answer, struct slice text, struct err *err) MUST_USE;
int tool_answer_end(struct tool_answer *answer, bool truncated, struct err *err) MUST_USE;

void tool_answer_release(struct tool_answer *answer);
