/* --plot FILE, common to all programs that draw charts. */
#ifndef BMC_PLOT_H
#define BMC_PLOT_H

#include "report/svg.h"
#include "opt/opt.h"

/* Exits with a usage error if the file name does not end in .svg ("-", FIFOs and devices may have
 * any name). NULL: no chart. */
void plot_check_usage(const struct program *program, const char *path);

/* Draws the chart and writes the file atomically. */
int plot_save(const char *path, const struct svg_plot *plot, struct err *err) MUST_USE;

#endif
