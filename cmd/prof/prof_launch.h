/* Runs other programs and collects their output. */
#pragma once

#include "base/mem.h"

/* A command line under construction. */
struct command {
    char *word[1024]; /* ends in NULL */
    size_t n;
    int errors; /* descriptor for its stderr; 0: inherited */
};

/* Adds one formatted word. */
int command_add(struct command *command, struct err *err, const char *format, ...)
    PRINTF_LIKE(3, 4) MUST_USE;

void command_release(struct command *command);

/* Runs the command with `input_fd`, rewound, as standard input, and appends its standard output to
 * `output`. Exit statuses other than 0 are errors; signals to this program end the command. */
int command_run(struct command *command, int input_fd, struct buf *output, struct err *err) MUST_USE;
