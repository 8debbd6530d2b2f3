/* Checks, before anything is computed, that every output can be written and replaces no input, no
 * other output and no file of another kind. Files are compared by inode, not by name. */
#pragma once

#include "base/err.h"
#include "opt/opt.h"

/* Registers an input file or folder that is not an option's value; call before
 * opt_files_check(). */
void opt_files_input(const char *name, const char *path);

/* Registers the file of a shape, given by name or path. */
void opt_files_input_shape(const char *name, const char *shape);

/* Checks the files of all options. Collisions are usage errors and end the program; outputs that
 * cannot be replaced or written set `err`. */
int opt_files_check(const struct program *program, const void *options, struct err *err) MUST_USE;

/* Checks an output that is only written sometimes, or whose path is a default. */
int opt_files_output(const struct program *program, const char *option, const char *path,
                     enum opt_file role, struct err *err) MUST_USE;
