/* Checks and writes the chart of --plot FILE. */
#include "plot.h"

#include <sys/stat.h>

#include "base/file.h"

/* True for "-", FIFOs and devices, which need no suffix. */
static bool is_stream(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 ||
           (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

void plot_check_usage(const struct program *program, const char *path)
{
    static const char ending[] = ".svg";
    const size_t len = path ? strlen(path) : 0, end = sizeof ending - 1;
    if (path && !is_stream(path) && (len <= end || strcasecmp(path + len - end, ending) != 0))
        opt_usage_error(program, "--plot: pictures are SVG: give a name that ends in .svg");
}

const char *chart_text(struct chart *chart, const char *format, ...)
{
    char *text = chart->texts + chart->used;
    const size_t left = sizeof chart->texts - chart->used;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, left, format, args);
    va_end(args);
    chart->used += size_min(n > 0 ? (size_t)n + 1 : 1, left - 1);
    return text;
}

void chart_title(struct chart *chart, const char *what, const char *path)
{
    const char *slash = strrchr(path, '/');
    chart->plot.title = chart_text(chart, "%s: %.200s", what, slash ? slash + 1 : path);
}

/* The values of field `key` in all rows, NaN where it is not a number. The chart owns the array.
 * NULL: out of memory, or no key. */
static const double *column_of(struct chart *chart, const json_t *rows, const char *key)
{
    const size_t n = json_array_size(rows);
    double *column = key ? mem_alloc(size_max(n, 1), sizeof *column) : NULL;
    for (size_t i = 0; column && i < n; i++) {
        const json_t *value = json_object_get(json_array_get(rows, i), key);
        column[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    if (column)
        chart->column[chart->n_columns++] = column;
    return column;
}

int chart_series(struct chart *chart, const json_t *rows, const char *x, const struct drawn *drawn,
                 size_t n, struct err *err)
{
    chart->plot.series = chart->series;
    for (const struct drawn *d = drawn; d < drawn + n; d++) {
        struct svg_series *s = &chart->series[chart->plot.n_series++];
        *s = (struct svg_series){.name = d->name,
                                 .x = column_of(chart, rows, x),
                                 .y = column_of(chart, rows, d->y),
                                 .lo = column_of(chart, rows, d->lo),
                                 .hi = column_of(chart, rows, d->hi),
                                 .n = json_array_size(rows),
                                 .draw = d->draw};
        if (!s->y || (x && !s->x) || (d->lo && !(s->lo && s->hi)))
            return err_no_memory(err, "a plot");
    }
    return 0;
}

void chart_mark(struct chart *chart, double x, double y, const char *label)
{
    chart->plot.mark[chart->plot.n_marks++] = (struct svg_mark){x, y, label};
}

int chart_save(struct chart *chart, int rc, const char *path, struct err *err)
{
    struct buf svg = {0};
    fflush(stdout);
    if (rc == 0 && (rc = svg_draw(&chart->plot, &svg, err)) == 0)
        rc = outfile_save(path, svg.data, svg.len, err);
    buf_release(&svg);
    for (size_t i = 0; i < chart->n_columns; i++)
        free(chart->column[i]);
    return rc;
}
