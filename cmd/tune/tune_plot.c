/* The chart of a configuration point: predicted, measured and fitted times over T. */
#include "quant/cache_types.h"
#include "plot.h"
#include "tune/tune.h"

/* Adds the fitted curve over the measured range of T. */
static int add_fit(struct chart *chart, const struct config_point *point, struct err *err)
{
    enum { FINE = 65 };
    static const struct drawn fit = {"fit a + bT + c/T", "fit_ms", NULL, NULL, SVG_LINE};
    const struct regret *r = &point->regret;
    json_t *rows = json_array();
    size_t first = 0;
    int rc = 0;
    while (!point->in_fit[first])
        first++;
    const double from = point->T[first], to = point->T[point->n - 1];
    for (size_t i = 0; rc == 0 && i < FINE; i++) {
        const double T = from * pow(to / from, (double)i / (FINE - 1));
        rc = json_push(rows, json_pack("{s:f, s:f}", "T", T, "fit_ms", fit_at(&r->fit, T)), err);
    }
    if (rc == 0)
        rc = chart_series(chart, rows, "T", &fit, 1, err);
    json_decref(rows);
    chart_note(
        chart,
        "The fit %s the medians from T = %.0f to %.0f; minimum at T = %.1f (90 %%: %.1f to %.1f).",
        config_point_contradicts(point) ? "disagrees with" : "agrees with", from, to, r->fit.T, r->T_lo,
        r->T_hi);
    chart_note(chart,
               "The prediction uses separately measured rates: at T = %.0f the measured time is %.2f "
               "times the predicted one.",
               point->T[point->used], point->time[point->used].ms / point->predicted_ms[point->used]);
    return rc;
}

static int add_series(struct chart *chart, const struct config_point *point, struct err *err)
{
    static const struct drawn drawn[] = {
        {"predicted by the model", "predicted_ms", NULL, NULL, SVG_LINE},
        {"measured, median and quartiles", "measured_ms", "measured_ms_q1", "measured_ms_q3",
         SVG_POINTS | SVG_WHISKERS},
    };
    AUTO(json_auto) json_t *rows = json_array();
    int rc = add_point_curve(rows, point, err);
    if (rc == 0)
        rc = chart_series(chart, rows, "T", drawn, point->measured ? 2 : 1, err);
    if (rc == 0 && point->measured)
        rc = add_fit(chart, point, err);
    return rc;
}

static void add_marks(struct chart *chart, const struct config_point *point)
{
    const size_t used = point->used, best = point->measured ? point->regret.best : used;
    const double *y = chart->series[point->measured].y;
    chart_mark(chart, point->T[used], y[used],
               chart_text(chart, "%s T = %.0f",
                          point->measured && used == best ? "tuned and best" : "tuned",
                          point->T[used]));
    if (used != best)
        chart_mark(chart, point->T[best], y[best],
                   chart_text(chart, "best measured T = %.0f", point->T[best]));
}

int tune_plot(const struct tune *tune, const struct config_point *point, struct err *err)
{
    const struct machine *m = &tune->profile.machine;
    struct chart chart = {.plot = {.x_name = "T, allocations per context",
                                   .y_name = "time to fill the context (ms)",
                                   .log2_x = true}};
    chart_title(&chart, "Cache growth and attention over T", tune->shape);
    chart_note(&chart, "One layer, N = %zu, batch %zu, %s caches, cache type %s, attention %s, %s",
               point->N, point->batch, point->cold ? "cold" : "hot", cache_type_name(tune->run.type),
               tune_attn_name(tune->run.backend, tune->run.attn),
               point->measured ? chart_text(&chart, "rounds: %zu", point->rounds) : "not measured");
    chart_note(&chart, "%s, %zu thread%s, isa %s, memory by %s", m->cpu, m->threads,
               m->threads == 1 ? "" : "s", m->isa, m->alloc);
    const int rc = add_series(&chart, point, err);
    if (rc == 0)
        add_marks(&chart, point);
    return chart_save(&chart, rc, tune->options->plot, err);
}
