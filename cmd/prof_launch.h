/* Other programs, run to their end for what they print. */
#ifndef BMC_PROF_LAUNCH_H
#define BMC_PROF_LAUNCH_H

#include "base/mem.h"

/* A command as a list of words, to which words are added. */
struct command {
    struct buf words; /* each ended by a 0 byte */
    size_t n;
    int errors; /* where its standard error goes; 0: to this program's */
};

/* One word, formatted. */
int command_add(struct command *command, struct err *err, const char *format, ...)
    PRINTF_LIKE(3, 4) MUST_USE;

/* The words of a text, between blanks; "%t" in them becomes the number. */
int command_add_text(struct command *command, const char *text, size_t t, struct err *err) MUST_USE;
void command_release(struct command *command);

/* Runs it with that standard input, from its beginning on, and appends what it prints. Another status than 0 is an error; a signal to this
 * program ends it. */
int command_run(const struct command *command, int input_fd, struct buf *output,
                struct err *err) MUST_USE;

#endif
