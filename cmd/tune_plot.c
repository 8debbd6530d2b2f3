/* The picture of a cell: predicted, measured and fitted times over T. */
#include <math.h>
#include <string.h>

#include "base/cache_types.h"
#include "plot.h"
#include "tune.h"

enum { FINE = 65 };

/* The series, and the numbers that they point to. */
struct picture {
    struct svg_plot plot;
    struct svg_series series[3];
    double ms[SWEEP_MAX], lo[SWEEP_MAX], hi[SWEEP_MAX];
    double fine_T[FINE], fit[FINE];
    char title[512], about[512], machine[512], fitted[256], predicted[256], label[2][64];
};

/* The fitted curve, over the T that it was fitted to. */
static void make_curve(struct picture *picture, const struct cell *cell)
{
    size_t first = 0;
    while (!cell->in_fit[first])
        first++;
    const double from = cell->T[first], to = cell->T[cell->n - 1];
    for (size_t i = 0; i < FINE; i++) {
        picture->fine_T[i] = from * pow(to / from, (double)i / (FINE - 1));
        picture->fit[i] = fit_at(&cell->regret.fit, picture->fine_T[i]);
    }
    snprintf(picture->fitted, sizeof picture->fitted,
             "The fit %s the medians from T = %.0f to %.0f; least at T = %.1f (90 %% in %.1f to %.1f).",
             cell_doubtful(cell) ? "does not agree with" : "goes through", from, to, cell->regret.fit.T,
             cell->regret.T_lo, cell->regret.T_hi);
    snprintf(
        picture->predicted, sizeof picture->predicted,
        "The prediction comes from constants measured by themselves: at T = %.0f the clock says %.2f "
        "times as much.",
        cell->T[cell->used], cell->time[cell->used].ms / cell->predicted_ms[cell->used]);
    picture->plot.note[2] = picture->fitted;
    picture->plot.note[3] = picture->predicted;
}

static void add_series(struct picture *picture, const struct cell *cell)
{
    struct svg_series *s = picture->series;
    for (size_t i = 0; i < cell->n; i++) {
        picture->ms[i] = cell->time[i].ms;
        picture->lo[i] = cell->time[i].lo_ms;
        picture->hi[i] = cell->time[i].hi_ms;
    }
    s[0] = (struct svg_series){
        "predicted by the model", cell->T, cell->predicted_ms, NULL, NULL, cell->n, SVG_LINE};
    if (cell->measured) {
        make_curve(picture, cell);
        s[1] = (struct svg_series){
            "measured, median and quartiles", cell->T, picture->ms, picture->lo, picture->hi, cell->n,
            SVG_POINTS | SVG_WHISKERS};
        s[2] = (struct svg_series){
            "fit a + bT + c/T", picture->fine_T, picture->fit, NULL, NULL, FINE, SVG_LINE};
    }
    picture->plot.series = s;
    picture->plot.n_series = cell->measured ? 3 : 1;
}

static void add_marks(struct picture *picture, const struct cell *cell)
{
    struct svg_plot *plot = &picture->plot;
    const size_t used = cell->used, best = cell->measured ? cell->regret.best : used;
    const double *y = cell->measured ? picture->ms : cell->predicted_ms;
    snprintf(picture->label[0], sizeof picture->label[0], "%s T = %.0f",
             cell->measured && used == best ? "tuned and best" : "tuned", cell->T[used]);
    plot->mark[plot->n_marks++] = (struct svg_mark){cell->T[used], y[used], picture->label[0]};
    if (used == best)
        return;
    snprintf(picture->label[1], sizeof picture->label[1], "best measured T = %.0f", cell->T[best]);
    plot->mark[plot->n_marks++] = (struct svg_mark){cell->T[best], y[best], picture->label[1]};
}

static void set_title(struct picture *picture, const struct tune *tune, const struct cell *cell)
{
    const struct machine *m = &tune->profile.machine;
    const char *slash = strrchr(tune->shape, '/');
    snprintf(picture->title, sizeof picture->title, "Growing cache and attention by T: %.200s",
             slash ? slash + 1 : tune->shape);
    snprintf(picture->about, sizeof picture->about,
             "One layer, N = %zu, batch %zu, %s caches, %s rows, attention %s, ", cell->N, cell->batch,
             cell->cold ? "cold" : "hot", cache_type_name(tune->run.type), tune->run.attn->name);
    const size_t len = strlen(picture->about);
    if (cell->measured)
        snprintf(picture->about + len, sizeof picture->about - len, "rounds: %zu", cell->rounds);
    else
        snprintf(picture->about + len, sizeof picture->about - len, "not measured");
    snprintf(picture->machine, sizeof picture->machine, "%s, %zu thread%s, isa %s, memory by %s",
             m->cpu, m->threads, m->threads == 1 ? "" : "s", m->isa, m->alloc);
    picture->plot.title = picture->title;
    picture->plot.note[0] = picture->about;
    picture->plot.note[1] = picture->machine;
}

int tune_plot(const struct tune *tune, const struct cell *cell, struct err *err)
{
    struct picture picture = {.plot = {.x_name = "T, allocations that fill the context",
                                       .y_name = "time to fill the context (ms)",
                                       .log2_x = true}};
    set_title(&picture, tune, cell);
    add_series(&picture, cell);
    add_marks(&picture, cell);
    return plot_save(tune->options->plot, &picture.plot, err);
}
