/* Events that the parser of answers reports, and the call that it reads. */
#pragma once

#include "text/tools/tool_parser.h"

/* Reports an event; those of calls have the name and the id of the call that is read. */
int tool_put(struct tool_parser *p, enum tool_event_kind kind, const char *text, size_t len,
             struct err *err) MUST_USE;

enum { TOOL_NO_CALL = 1 };

/* Reports that a call begins, whose name and, if the model wrote one, id are set. Returns 0; TOOL_NO_CALL: no call begins
 * here; or -1. */
int tool_begin_call(struct tool_parser *p, struct err *err) MUST_USE;

/* Reports arguments of a call that has begun. */
int tool_put_arguments(struct tool_parser *p, struct err *err) MUST_USE;

/* Reports that a call is complete. */
int tool_end_call(struct tool_parser *p, struct err *err) MUST_USE;

void tool_forget_call(struct tool_parser *p);

/* A tool's function: in OpenAI's form a member of the tool, else the tool itself; and its name, or NULL. */
const json_t *tool_function_of(const json_t *tool);
const char *tool_name(const json_t *tool);

/* The function of that name in OpenAI's list of tools, or NULL. */
const json_t *tool_function(const json_t *tools, const char *name);
