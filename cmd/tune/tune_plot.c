/* The chart of a configuration point: predicted, measured and fitted times over T. */
#include <math.h>
#include <string.h>

#include "quant/cache_types.h"
#include "plot.h"
#include "tune/tune.h"

enum { FINE = 65 };

/* The chart, and the arrays that its series refer to. */
struct tune_chart {
    struct svg_plot plot;
    struct svg_series series[3];
    double ms[SWEEP_MAX], lo[SWEEP_MAX], hi[SWEEP_MAX];
    double fine_T[FINE], fit[FINE];
    char title[512], about[512], machine[512], fitted[256], predicted[256], label[2][64];
};

/* Adds the fitted curve over the measured range of T. */
static void make_curve(struct tune_chart *chart, const struct config_point *point)
{
    size_t first = 0;
    while (!point->in_fit[first])
        first++;
    const double from = point->T[first], to = point->T[point->n - 1];
    for (size_t i = 0; i < FINE; i++) {
        chart->fine_T[i] = from * pow(to / from, (double)i / (FINE - 1));
        chart->fit[i] = fit_at(&point->regret.fit, chart->fine_T[i]);
    }
    snprintf(chart->fitted, sizeof chart->fitted,
             "The fit %s the medians from T = %.0f to %.0f; minimum at T = %.1f (90 %%: %.1f to %.1f).",
             config_point_contradicts(point) ? "disagrees with" : "agrees with", from, to,
             point->regret.fit.T, point->regret.T_lo, point->regret.T_hi);
    snprintf(chart->predicted, sizeof chart->predicted,
             "The prediction uses separately measured rates: at T = %.0f the measured time is %.2f "
             "times the predicted one.",
             point->T[point->used], point->time[point->used].ms / point->predicted_ms[point->used]);
    chart->plot.note[2] = chart->fitted;
    chart->plot.note[3] = chart->predicted;
}

static void add_series(struct tune_chart *chart, const struct config_point *point)
{
    struct svg_series *s = chart->series;
    for (size_t i = 0; i < point->n; i++) {
        chart->ms[i] = point->time[i].ms;
        chart->lo[i] = point->time[i].lo_ms;
        chart->hi[i] = point->time[i].hi_ms;
    }
    s[0] = (struct svg_series){
        "predicted by the model", point->T, point->predicted_ms, NULL, NULL, point->n, SVG_LINE};
    if (point->measured) {
        make_curve(chart, point);
        s[1] = (struct svg_series){
            "measured, median and quartiles", point->T, chart->ms, chart->lo, chart->hi, point->n,
            SVG_POINTS | SVG_WHISKERS};
        s[2] = (struct svg_series){
            "fit a + bT + c/T", chart->fine_T, chart->fit, NULL, NULL, FINE, SVG_LINE};
    }
    chart->plot.series = s;
    chart->plot.n_series = point->measured ? 3 : 1;
}

static void add_marks(struct tune_chart *chart, const struct config_point *point)
{
    struct svg_plot *plot = &chart->plot;
    const size_t used = point->used, best = point->measured ? point->regret.best : used;
    const double *y = point->measured ? chart->ms : point->predicted_ms;
    snprintf(chart->label[0], sizeof chart->label[0], "%s T = %.0f",
             point->measured && used == best ? "tuned and best" : "tuned", point->T[used]);
    plot->mark[plot->n_marks++] = (struct svg_mark){point->T[used], y[used], chart->label[0]};
    if (used == best)
        return;
    snprintf(chart->label[1], sizeof chart->label[1], "best measured T = %.0f", point->T[best]);
    plot->mark[plot->n_marks++] = (struct svg_mark){point->T[best], y[best], chart->label[1]};
}

static void set_title(struct tune_chart *chart, const struct tune *tune,
                      const struct config_point *point)
{
    const struct machine *m = &tune->profile.machine;
    const char *slash = strrchr(tune->shape, '/');
    snprintf(chart->title, sizeof chart->title, "Cache growth and attention over T: %.200s",
             slash ? slash + 1 : tune->shape);
    snprintf(chart->about, sizeof chart->about,
             "One layer, N = %zu, batch %zu, %s caches, cache type %s, attention %s, ", point->N,
             point->batch, point->cold ? "cold" : "hot", cache_type_name(tune->run.type),
             tune->run.attn->name);
    const size_t len = strlen(chart->about);
    if (point->measured)
        snprintf(chart->about + len, sizeof chart->about - len, "rounds: %zu", point->rounds);
    else
        snprintf(chart->about + len, sizeof chart->about - len, "not measured");
    snprintf(chart->machine, sizeof chart->machine, "%s, %zu thread%s, isa %s, memory by %s", m->cpu,
             m->threads, m->threads == 1 ? "" : "s", m->isa, m->alloc);
    chart->plot.title = chart->title;
    chart->plot.note[0] = chart->about;
    chart->plot.note[1] = chart->machine;
}

int tune_plot(const struct tune *tune, const struct config_point *point, struct err *err)
{
    struct tune_chart chart = {.plot = {.x_name = "T, allocations per context",
                                        .y_name = "time to fill the context (ms)",
                                        .log2_x = true}};
    set_title(&chart, tune, point);
    add_series(&chart, point);
    add_marks(&chart, point);
    return plot_save(tune->options->plot, &chart.plot, err);
}
