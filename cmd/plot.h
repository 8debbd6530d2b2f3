/* --plot FILE, common to all programs that draw charts: a chart of result rows, one series per field. */
#pragma once

#include "base/json.h"
#include "report/svg.h"
#include "opt/opt.h"

/* Exits with a usage error if the file name does not end in .svg ("-", FIFOs and devices may have
 * any name). NULL: no chart. */
void plot_check_usage(const struct program *program, const char *path);

enum { CHART_SERIES = 32, CHART_TEXT_BYTES = 16 << 10 };

/* A chart under construction: the plot, and what it refers to. */
struct chart {
    struct svg_plot plot;
    struct svg_series series[CHART_SERIES];
    double *column[4 * CHART_SERIES];
    size_t n_columns, n_notes;
    char texts[CHART_TEXT_BYTES];
    size_t used;
};

/* A series to draw: its label, and the fields of rows for y values and error bars (`lo`, `hi` or NULL). */
struct drawn {
    const char *name, *y, *lo, *hi;
    unsigned draw;
};

/* Formats a text that lives as long as the chart. */
const char *chart_text(struct chart *chart, const char *format, ...) PRINTF_LIKE(2, 3);

/* Adds a line below the title. */
#define chart_note(chart, ...) ((chart)->plot.note[(chart)->n_notes++] = chart_text(chart, __VA_ARGS__))

/* Sets the title, "WHAT: NAME", with the file name of a path. */
void chart_title(struct chart *chart, const char *what, const char *path);

/* Adds n series over the field `x`; NULL: rows are bars. Fields that are no numbers are left out. */
int chart_series(struct chart *chart, const json_t *rows, const char *x, const struct drawn *drawn,
                 size_t n, struct err *err) MUST_USE;

void chart_mark(struct chart *chart, double x, double y, const char *label);

/* Draws the chart and writes the file atomically, unless `rc` is an error; releases the chart. */
int chart_save(struct chart *chart, int rc, const char *path, struct err *err) MUST_USE;
