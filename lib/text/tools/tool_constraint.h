/* Constraints on tool calls: from a format of calls and the schemas of tools to a structure (text/grammar/structure.h). */
#pragma once

#include "text/tokenizer/tokenizer.h"
#include "text/tools/tool_format.h"

/* Which calls an answer has: as the model decides, at least one, or one or more of the tool `name`. */
enum tool_choice_kind { TOOL_CHOICE_AUTO, TOOL_CHOICE_NONE, TOOL_CHOICE_REQUIRED, TOOL_CHOICE_NAME };

struct tool_choice {
    enum tool_choice_kind kind;
    const char *name;
    bool single; /* one call at most */
};

/* Makes the structure of an answer's calls, in the format's first pattern: to `text`, as JSON. With TOOL_CHOICE_AUTO it
 * begins behind *trigger, the text with which a call begins, which is the format's; an empty one: calls begin with no
 * text of their own, and nothing is made. `tools` is a list as in requests. Fails if the list or a schema is not valid,
 * no tool has the name, or the format has calls that no structure describes. */
int tool_constraint(const struct tool_format *format, const json_t *tools,
                    const struct tool_choice *choice, const struct tokenizer *tok, struct buf *text,
                    struct buf *trigger, struct err *err) MUST_USE;
