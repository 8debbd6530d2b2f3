/* Draws charts of results with report/svg.h, narrow enough for a phone. */
#include "chart.h"

#include <math.h>
#include <stdlib.h>

#include "report/svg.h"

enum { NARROW = 520, MOST_SERIES = 12, MOST_BARS = 40 };

int chart_ratios(const json_t *const *claims, const struct judged *judged, size_t n, struct buf *out,
                 struct err *err)
{
    const char *names[MOST_BARS];
    double paper[MOST_BARS], ours[MOST_BARS], lo[MOST_BARS], hi[MOST_BARS];
    size_t bars = 0;
    for (size_t i = 0; i < n && bars < MOST_BARS; i++) {
        const json_t *claim = claims[i], *label = json_object_get(claim, "label");
        if (!isfinite(judged[i].ratio.median))
            continue;
        names[bars] = json_string_value(label ? label : json_object_get(claim, "name"));
        if (!names[bars])
            return err_set(err, "a claim has no \"name\"");
        paper[bars] = (judged[i].paper_lo + judged[i].paper_hi) / 2;
        ours[bars] = judged[i].ratio.median;
        lo[bars] = judged[i].ratio.lo;
        hi[bars] = judged[i].ratio.hi;
        bars++;
    }
    if (bars == 0)
        return 0;
    const struct svg_series series[] = {
        {.name = "paper", .y = paper, .n = bars, .draw = SVG_BAR | SVG_PALE},
        {.name = "measured, with its interval",
         .y = ours,
         .lo = lo,
         .hi = hi,
         .n = bars,
         .draw = SVG_POINTS | SVG_WHISKERS | SVG_VALUES},
    };
    const struct svg_plot plot = {.title = "Ratios, paper and measured",
                                  .y_name = "ratio",
                                  .x_name = "",
                                  .width = NARROW,
                                  .bar = names,
                                  .n_bars = bars,
                                  .series = series,
                                  .n_series = ARRAY_LEN(series)};
    return svg_draw(&plot, out, err);
}

/* The numbers of a list as an array of `n`, NaN where there is none; NULL if there is no list, or no
 * memory, which sets *failed. */
static double *numbers(const json_t *list, size_t n, bool *failed)
{
    double *x = json_is_array(list) ? mem_alloc(n ? n : 1, sizeof *x) : NULL;
    if (json_is_array(list) && !x)
        *failed = true;
    for (size_t i = 0; x && i < n; i++) {
        const json_t *value = json_array_get(list, i);
        x[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return x;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int chart_figure(const json_t *figure, struct buf *out, struct err *err)
{
    const json_t *list = json_object_get(figure, "series"), *bars = json_object_get(figure, "bars");
    const size_t n = json_array_size(list), n_bars = json_array_size(bars);
    struct svg_series series[MOST_SERIES] = {0};
    const char *names[MOST_BARS];
    double *column[MOST_SERIES][4] = {{0}};
    bool failed = false;
    if (n == 0 || n > MOST_SERIES || n_bars > MOST_BARS)
        return err_set(err, "a figure has %zu series and %zu bars: 1 to %d, at most %d", n, n_bars,
                       MOST_SERIES, MOST_BARS);
    for (size_t i = 0; i < n_bars; i++) {
        const char *name = json_string_value(json_array_get(bars, i));
        names[i] = name ? name : "";
    }
    for (size_t k = 0; k < n; k++) {
        const json_t *from = json_array_get(list, k);
        static const char *const keys[] = {"y", "x", "lo", "hi"};
        const size_t points = json_array_size(json_object_get(from, "y"));
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
            column[k][i] = numbers(json_object_get(from, keys[i]), points, &failed);
        const bool spread = column[k][2] && column[k][3];
        series[k] = (struct svg_series){.name = text_of(from, "name"),
                                        .y = column[k][0],
                                        .x = n_bars ? NULL : column[k][1],
                                        .lo = spread ? column[k][2] : NULL,
                                        .hi = spread ? column[k][3] : NULL,
                                        .n = column[k][0] ? points : 0,
                                        .draw = n_bars ? SVG_BAR : SVG_LINE | SVG_POINTS};
        series[k].draw |= spread ? SVG_WHISKERS : 0;
    }
    const struct svg_plot plot = {.title = text_of(figure, "title"),
                                  .x_name = text_of(figure, "x_name"),
                                  .y_name = text_of(figure, "y_name"),
                                  .log2_x = json_is_true(json_object_get(figure, "log2_x")),
                                  .width = NARROW,
                                  .bar = n_bars ? names : NULL,
                                  .n_bars = n_bars,
                                  .series = series,
                                  .n_series = n};
    const int rc = failed ? err_no_memory(err, "a chart") : svg_draw(&plot, out, err);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < ARRAY_LEN(column[k]); i++)
            free(column[k][i]);
    return rc;
}
