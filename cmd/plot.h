/* --plot FILE: the same in all programs that draw. */
#ifndef BMC_PLOT_H
#define BMC_PLOT_H

#include "base/svg.h"
#include "opt.h"

/* A name that says another format than SVG is wrong usage: ends the program. "-", and what is there and no regular file (a
 * FIFO, a device), may be called as it likes. NULL is no picture. */
void plot_check_usage(const struct program *program, const char *path);

/* Draws into the file, which appears when it is complete. */
int plot_save(const char *path, const struct svg_plot *plot, struct err *err) MUST_USE;

#endif
