/* --run-tools: runs the commands that a tools file names for the calls of a model, each after the user has agreed. */
#pragma once

#include "base/json.h"
#include "chat/line_editor.h"
#include "chat/sandbox.h"

/* In a tools file, "command" stands beside "function": the program and its arguments, a list of strings. The call's
 * arguments are its standard input, as JSON. */
struct repl_tools {
    json_t *commands; /* by name of the function */
    char *folder;     /* of the tools file */
    struct sandbox sandbox;
};

/* Takes the commands out of a list of tools, which no longer has them then, and opens the sandbox. `path`: of the tools
 * file. */
int repl_tools_open(struct repl_tools *tools, json_t *list, const char *path, struct err *err) MUST_USE;
void repl_tools_close(struct repl_tools *tools);

/* Asks whether a call is to be run, runs it, and appends what the model is told. Returns LINE_READ; LINE_STOPPED or LINE_END,
 * if the user stopped instead of answering; or -1. */
int repl_tools_call(struct repl_tools *tools, struct line_editor *editor, const json_t *call,
                    struct buf *result, struct err *err) MUST_USE;
