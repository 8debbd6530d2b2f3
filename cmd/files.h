/* The files of a run: no output replaces an input, another output, or a file of a kind that is not its own, and each
 * can be written, which is found out before anything is computed. Files are told apart by what they are, not by how
 * their names are spelt. */
#ifndef BMC_FILES_H
#define BMC_FILES_H

#include "base/err.h"
#include "opt.h"

/* A file, or a folder of files, that the run reads beside those of its options. To be named before files_check(). */
void files_input(const char *what, const char *path);

/* The same of the file that a shape's name or path stands for. */
void files_input_shape(const char *what, const char *shape);

/* Checks all files that the options name, by the rows of the option table. One file in two places is wrong usage, and
 * ends the program; what cannot be replaced or written is an error. */
int files_check(const struct program *program, const void *options, struct err *err) MUST_USE;

/* Checks the output of an option whose row does not tell: its default, or one that is written only under another
 * option. */
int files_output(const struct program *program, const char *option, const char *path,
                 enum opt_file role, struct err *err) MUST_USE;

#endif
