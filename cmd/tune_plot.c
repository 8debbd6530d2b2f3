/* A small SVG: predicted, measured and fitted times over T. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "tune.h"

enum { WIDTH = 800, HEIGHT = 480, LEFT = 80, RIGHT = 30, TOP = 50, BOTTOM = 90 };

struct axes {
    double max_T, max_ms;
};

static double x_of(const struct axes *axes, double T)
{
    const double span = fmax(log2(axes->max_T), 1);
    return LEFT + (WIDTH - LEFT - RIGHT) * log2(T) / span;
}

static double y_of(const struct axes *axes, double ms)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ms / axes->max_ms;
}

/* 1, 2 or 5 times a power of ten: about five of them in `most`. */
static double tick_of(double most)
{
    const double power = pow(10, floor(log10(most / 5)));
    const double digit = most / 5 / power;
    return power * (digit > 5 ? 10 : digit > 2 ? 5 : digit > 1 ? 2 : 1);
}

/* Text as XML wants it; what is no plain character becomes a question mark. */
static int add_text(struct buf *svg, const char *text, struct err *err)
{
    for (; *text; text++) {
        const char *as = *text == '<' ? "&lt;" : *text == '&' ? "&amp;" : *text == '>' ? "&gt;" : NULL;
        const char c = *text >= ' ' && *text < 127 ? *text : '?';
        if ((as ? buf_addf(svg, err, "%s", as) : buf_add(svg, &c, 1, err)) < 0)
            return -1;
    }
    return 0;
}

static int add_axes(struct buf *svg, const struct axes *axes, const struct cell *cell,
                    const char *title, struct err *err)
{
    if (buf_addf(svg, err,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                 "font-family=\"sans-serif\" "
                 "font-size=\"14\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                 "<text x=\"%d\" y=\"28\" text-anchor=\"middle\" font-size=\"16\">",
                 WIDTH, HEIGHT, WIDTH / 2) < 0 ||
        add_text(svg, title, err) < 0 || buf_addf(svg, err, "</text>\n") < 0)
        return -1;
    const double tick = tick_of(axes->max_ms);
    for (double ms = 0; ms <= axes->max_ms; ms += tick)
        if (buf_addf(svg, err,
                     "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%g</text>\n",
                     LEFT, y_of(axes, ms), WIDTH - RIGHT, LEFT - 8, y_of(axes, ms) + 5, ms) < 0)
            return -1;
    for (size_t i = 0; i < cell->n; i++)
        if (buf_addf(svg, err, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\"%s>%g</text>\n",
                     x_of(axes, cell->T[i]), HEIGHT - BOTTOM + 22,
                     i == cell->used ? " font-weight=\"bold\"" : "", cell->T[i]) < 0)
            return -1;
    return buf_addf(
        svg, err,
        "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">T, allocations</text>\n"
        "<text x=\"20\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 20 %d)\">ms</text>\n",
        WIDTH / 2, HEIGHT - BOTTOM + 46, HEIGHT / 2, HEIGHT / 2);
}

/* A line of one series with its name in the legend; `slot` is its place there. */
static int add_series(struct buf *svg, const struct axes *axes, const char *name, const char *colour,
                      const double *T, const double *ms, size_t n, bool dots, int slot, struct err *err)
{
    const int x = LEFT + slot * 200, y = HEIGHT - 20;
    if (buf_addf(svg, err, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                 colour) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (buf_addf(svg, err, "%.1f,%.1f ", x_of(axes, T[i]), y_of(axes, ms[i])) < 0)
            return -1;
    if (buf_addf(svg, err, "\"/>\n") < 0)
        return -1;
    for (size_t i = 0; dots && i < n; i++)
        if (buf_addf(svg, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n",
                     x_of(axes, T[i]), y_of(axes, ms[i]), colour) < 0)
            return -1;
    return buf_addf(
        svg, err,
        "<path d=\"M%d %dh24\" stroke=\"%s\" stroke-width=\"3\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
        x, y - 5, colour, x + 32, y, name);
}

static int draw(struct buf *svg, const struct cell *cell, const char *title, struct err *err)
{
    enum { FINE = 65 };
    struct axes axes = {cell->T[cell->n - 1], 0};
    double T[FINE], fit[FINE], measured[SWEEP_MAX];
    for (size_t i = 0; i < cell->n; i++) {
        measured[i] = cell->time[i].ms;
        axes.max_ms = fmax(axes.max_ms, fmax(cell->predicted_ms[i], measured[i]));
    }
    axes.max_ms *= 1.05;
    if (add_axes(svg, &axes, cell, title, err) < 0 ||
        add_series(svg, &axes, "predicted (eq. 5)", "#1f77b4", cell->T, cell->predicted_ms, cell->n,
                   false, 0, err) < 0)
        return -1;
    if (cell->measured) {
        size_t first = 0, n = 0;
        while (!cell->in_fit[first])
            first++;
        for (; n < FINE; n++) {
            T[n] = cell->T[first] * pow(axes.max_T / cell->T[first], (double)n / (FINE - 1));
            fit[n] = fit_at(&cell->regret.fit, T[n]);
        }
        if (add_series(svg, &axes, "measured", "#d62728", cell->T, measured, cell->n, true, 1, err) <
                0 ||
            add_series(svg, &axes, "fit a + bT + c/T", "#2ca02c", T, fit, n, false, 2, err) < 0)
            return -1;
    }
    return buf_addf(svg, err, "</svg>\n");
}

int tune_plot(const char *path, const struct cell *cell, const char *title, struct err *err)
{
    struct outfile out;
    struct buf svg = {0};
    fflush(stdout);
    int rc = draw(&svg, cell, title, err);
    if (rc == 0 && (rc = outfile_open(&out, path, err)) == 0) {
        rc = outfile_write(&out, svg.data, svg.len, err);
        if (rc == 0)
            rc = outfile_commit(&out, err);
        outfile_abort(&out);
    }
    buf_release(&svg);
    return rc;
}
