/* SVG plots of measurements: lines and points over x, or stacked bars. */
#pragma once

#include "base/mem.h"

/* The font of all charts, in their first bytes. */
#define SVG_FONT "font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\" font-size=\"13\""

/* How a series is drawn: flags. */
enum svg_draw {
    SVG_LINE = 1,
    SVG_POINTS = 2,
    SVG_BAND = 4,     /* spread as a filled area */
    SVG_WHISKERS = 8, /* spread as error bars */
    SVG_BAR = 16,     /* stacked on the bars of earlier series */
    SVG_VALUES = 32,  /* prints the value next to every point */
    SVG_MAXIMA = 64,  /* small rings; triangles at the top of the axis for outliers */
    SVG_PALE = 128    /* bars in a pale shade, for points drawn over them */
};

struct svg_series {
    const char *name;
    const double *x;       /* [n], ascending; NULL: x is the index of the bar */
    const double *y;       /* [n]; values that are not finite are omitted */
    const double *lo, *hi; /* [n] lower and upper end of the spread; NULL: none */
    size_t n;
    unsigned draw; /* flags of enum svg_draw */
};

/* One of several plots stacked vertically, with common axes. */
struct svg_panel {
    const char *name;
    double p50, p95; /* drawn as dashed lines; NaN: none */
};

/* A ring around a point, labelled above the plot. */
struct svg_mark {
    double x, y;
    const char *label;
};

enum { SVG_NOTES = 4, SVG_MARKS = 4 };

/* A plot. Texts may contain any bytes: they are escaped, and truncated if too long. */
struct svg_plot {
    const char *title, *note[SVG_NOTES]; /* lines below the title; NULL if unused */
    const char *x_name, *y_name;         /* axis titles with units; the y axis begins at 0 */
    int width;                           /* pixels; 0: 900. At least 300 */
    bool log2_x;                         /* logarithmic x axis with powers of 2; needs x > 0 */
    const char *const *bar;              /* [n_bars] names; NULL: x is numeric */
    size_t n_bars;
    const struct svg_series *series; /* grouped by panel, the same number in each */
    size_t n_series;
    const struct svg_panel *panel; /* [n_panels]; n_panels of 0: a single plot */
    size_t n_panels;
    struct svg_mark mark[SVG_MARKS];
    size_t n_marks;
};

/* Appends the plot to `out`, as an SVG document. */
int svg_draw(const struct svg_plot *plot, struct buf *out, struct err *err) MUST_USE;
