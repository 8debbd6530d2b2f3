/* Charts of measurements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"
#include "prof/prof.h"

enum { MOST_SERIES = 2 * PROF_MAX_LIST };

/* A chart, and the arrays that its series refer to. */
struct prof_picture {
    struct svg_plot plot;
    struct svg_series series[MOST_SERIES];
    double *column[4 * MOST_SERIES];
    size_t n_columns;
    char title[512], about[512], machine[512];
};

static void picture_release(struct prof_picture *picture)
{
    for (size_t i = 0; i < picture->n_columns; i++)
        free(picture->column[i]);
}

/* The values of field `key` in all rows, NaN where it is not a number. The picture owns the array.
 * NULL: out of memory. */
static const double *column_of(struct prof_picture *picture, const json_t *rows, const char *key)
{
    const size_t n = json_array_size(rows);
    double *column = mem_alloc(size_max(n, 1), sizeof *column);
    for (size_t i = 0; column && i < n; i++) {
        const json_t *value = json_object_get(json_array_get(rows, i), key);
        column[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    if (column)
        picture->column[picture->n_columns++] = column;
    return column;
}

/* A series to draw: its label, and the fields for y values and error bars (`lo`, `hi` or NULL). */
struct drawn {
    const char *name, *y, *lo, *hi;
    unsigned draw;
};

static int add_series(struct prof_picture *picture, const json_t *rows, const char *x,
                      const struct drawn *drawn, struct err *err)
{
    struct svg_series *s = &picture->series[picture->plot.n_series++];
    *s = (struct svg_series){.name = drawn->name, .n = json_array_size(rows), .draw = drawn->draw};
    s->x = x ? column_of(picture, rows, x) : NULL;
    s->y = column_of(picture, rows, drawn->y);
    s->lo = drawn->lo ? column_of(picture, rows, drawn->lo) : NULL;
    s->hi = drawn->hi ? column_of(picture, rows, drawn->hi) : NULL;
    picture->plot.series = picture->series;
    return s->y && (!x || s->x) && (!drawn->lo || (s->lo && s->hi)) ? 0 : err_no_memory(err, "a plot");
}

static const char *text_of(const json_t *rows, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(rows, 0), key));
    return text ? text : "?";
}

static void set_title(struct prof_picture *picture, const struct prof *prof, const char *what)
{
    const struct run *run = &prof->report.run;
    const char *slash = strrchr(prof->report.shape, '/');
    snprintf(picture->title, sizeof picture->title, "%s: %.200s", what,
             slash ? slash + 1 : prof->report.shape);
    snprintf(picture->about, sizeof picture->about,
             "%zu layer%s, N = %zu, batch %zu, KV cache %s, attention %s, rounds: %d",
             run->config.layers, run->config.layers == 1 ? "" : "s", run->N, run->batch,
             text_of(prof->rows, "kv_type"), run->attn->name, prof->report.repeat);
    snprintf(picture->machine, sizeof picture->machine, "%.200s, %d thread%s, isa %s",
             text_of(prof->rows, "cpu"), run->threads, run->threads == 1 ? "" : "s", run->kernels->isa);
    picture->plot.title = picture->title;
    picture->plot.note[0] = picture->about;
    picture->plot.note[1] = picture->machine;
}

int prof_plot_policies(const struct prof *prof, struct err *err)
{
    static const struct drawn drawn[] = {
        {"allocation", "alloc_ms", NULL, NULL, SVG_BAR},
        {"copying", "copy_ms", NULL, NULL, SVG_BAR},
        {"new rows", "append_ms", NULL, NULL, SVG_BAR},
        {"attention", "sdpa_ms", NULL, NULL, SVG_BAR},
        {"total, fastest to slowest round", "total_ms", "total_ms_min", "total_ms_max",
         SVG_POINTS | SVG_WHISKERS | SVG_VALUES},
    };
    struct prof_picture picture = {
        .plot = {.x_name = "cache policy", .y_name = "time of all steps (ms)"}};
    char text[PROF_MAX_LIST][160];
    const char *name[PROF_MAX_LIST];
    int rc = 0;
    for (size_t i = 0; i < prof->n_contenders; i++) {
        const bool failed = json_object_get(json_array_get(prof->rows, i), "error") != NULL;
        snprintf(text[i], sizeof text[i], "%s%s", prof->contender[i].text,
                 failed ? " (not measured)" : "");
        name[i] = text[i];
    }
    picture.plot.bar = name;
    picture.plot.n_bars = prof->n_contenders;
    set_title(&picture, prof, "Attention block under cache policies");
    picture.plot.note[2] = "Parts and total are separate medians, and the total includes the time of "
                           "measuring: bars need not reach it.";
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(drawn); i++)
        rc = add_series(&picture, prof->rows, NULL, &drawn[i], err);
    if (rc == 0)
        rc = plot_save(prof->options.plot, &picture.plot, err);
    picture_release(&picture);
    return rc;
}

/* Marks the fastest T and the T that bmc uses by default. */
static void mark_T(struct prof_picture *picture, const struct prof *prof, char label[2][64])
{
    const struct svg_series *total = &picture->series[0];
    struct svg_plot *plot = &picture->plot;
    size_t best = 0, own = total->n;
    const char *from;
    const size_t own_T = prof_own_T(prof, &from);
    for (size_t i = 0; i < total->n; i++) {
        best = total->y[i] < total->y[best] || isnan(total->y[best]) ? i : best;
        own = total->x[i] == (double)own_T ? i : own;
    }
    snprintf(label[0], sizeof label[0], "%s T = %.0f", own == best ? "best and bmc's own" : "best",
             total->x[best]);
    plot->mark[plot->n_marks++] = (struct svg_mark){total->x[best], total->y[best], label[0]};
    if (own == best || own == total->n)
        return;
    snprintf(label[1], sizeof label[1], "bmc's own T = %.0f (%s)", total->x[own], from);
    plot->mark[plot->n_marks++] = (struct svg_mark){total->x[own], total->y[own], label[1]};
}

int prof_plot_sweep(const struct prof *prof, struct err *err)
{
    static const struct drawn drawn[] = {
        {"total, fastest to slowest round", "total_ms", "total_ms_min", "total_ms_max",
         SVG_LINE | SVG_POINTS | SVG_BAND},
        {"copying", "copy_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
        {"allocation", "alloc_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
        {"attention", "sdpa_ms", NULL, NULL, SVG_LINE | SVG_POINTS},
    };
    struct prof_picture picture = {.plot = {.x_name = "T, allocations per context",
                                            .y_name = "time of all steps (ms)",
                                            .log2_x = true}};
    char label[2][64];
    int rc = 0;
    set_title(&picture, prof, "Attention block under bmc by T");
    picture.plot.note[2] = "Every point is a median of its own: parts need not add up to the total.";
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(drawn); i++)
        rc = add_series(&picture, prof->rows, "T", &drawn[i], err);
    if (rc == 0) {
        mark_T(&picture, prof, label);
        rc = plot_save(prof->options.plot, &picture.plot, err);
    }
    picture_release(&picture);
    return rc;
}

/* Formats a panel's title: "bmc: p50 1.2 ms, p95 1.5 ms, slowest 4 ms". */
static void name_panel(const struct prof *prof, size_t contender, const struct latency_all *all,
                       const struct svg_series *slowest, char *text, size_t size)
{
    const char *policy = prof->contender[contender].text;
    double most = 0;
    for (size_t i = 0; i < slowest->n; i++)
        most = fmax(most, isnan(slowest->y[i]) ? 0 : slowest->y[i]);
    if (isnan(all->p50_ms))
        snprintf(text, size, "%s: not measured", policy);
    else
        snprintf(text, size, "%s: p50 %.3g ms, p95 %.3g ms, slowest %.3g ms", policy, all->p50_ms,
                 all->p95_ms, most);
}

int prof_plot_latency(const struct prof *prof, struct err *err)
{
    struct prof_picture picture = {
        .plot = {.x_name = "n, KV entries in the cache", .y_name = "time of a token (ms)"}};
    const struct latency_all *all = prof->latency;
    static const char *const end[] = {"_ms", "_p95_ms", "_max_ms"};
    struct svg_panel panel[PROF_MAX_LIST];
    char key[ARRAY_LEN(end)][PROF_FIELD_BYTES], name[PROF_MAX_LIST][PROF_FIELD_BYTES];
    int rc = 0;
    set_title(&picture, prof, "Time of the n-th token");
    picture.plot.note[2] =
        "A point stands for the tokens since the point before. Dashed: p50 and p95 of all tokens.";
    for (size_t i = 0; rc == 0 && i < prof->n_contenders; i++) {
        for (size_t k = 0; k < ARRAY_LEN(end); k++)
            snprintf(key[k], sizeof key[k], "%s%s", prof->contender[i].text, end[k]);
        const struct drawn median = {"median, area up to their p95", key[0], key[0], key[1],
                                     SVG_LINE | SVG_POINTS | SVG_BAND};
        const struct drawn slowest = {"slowest of them", key[2], NULL, NULL, SVG_MAXIMA};
        rc = add_series(&picture, prof->rows, "n", &median, err);
        if (rc == 0)
            rc = add_series(&picture, prof->rows, "n", &slowest, err);
        if (rc < 0)
            break;
        name_panel(prof, i, &all[i], &picture.series[picture.plot.n_series - 1], name[i],
                   sizeof name[i]);
        panel[i] = (struct svg_panel){name[i], all[i].p50_ms, all[i].p95_ms};
    }
    picture.plot.panel = panel;
    picture.plot.n_panels = prof->n_contenders;
    if (rc == 0)
        rc = plot_save(prof->options.plot, &picture.plot, err);
    picture_release(&picture);
    return rc;
}
