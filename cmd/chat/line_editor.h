/* Reads lines from the terminal: with editing and history if the program was built with libedit, else
 * as the terminal driver edits them. */
#pragma once

#include <signal.h>

#include "base/mem.h"

/* The version of libedit; NULL: built without it. */
const char *line_editor_version(void);

struct line_editor;

/* Appends what Tab inserts after a line that begins with a slash. */
typedef int line_complete(void *arg, const char *line, struct buf *rest, struct err *err);

/* Opens the editor on standard input and output, which are terminals. `stop` is borrowed: once not 0, it
 * ends a line that is being read. */
int line_editor_open(struct line_editor **editor, const char *program,
                     const volatile sig_atomic_t *stop, line_complete *complete, void *arg,
                     struct err *err) MUST_USE;
void line_editor_close(struct line_editor *editor); /* NULL is accepted */

enum line_outcome { LINE_READ, LINE_END, LINE_STOPPED };

/* Appends a line without its newline to `line`. LINE_END: end of input; LINE_STOPPED: *stop is set, or
 * the program was interrupted. -1: error. `as_is`: newlines that are pasted end lines as typed ones do;
 * otherwise a backslash is put before them, so that they do not end the message. Tabs, and carriage returns before
 * newlines, that are pasted are part of the line. */
int line_editor_read(struct line_editor *editor, const char *prompt, bool as_is, struct buf *line,
                     struct err *err) MUST_USE;

/* Adds a line to the history, which ends with the program. */
void line_editor_remember(struct line_editor *editor, const char *line);
