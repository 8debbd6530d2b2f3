/* Pictures of measurements as SVG: lines with points over x, or stacked bars, on a white ground. */
#ifndef BMC_SVG_H
#define BMC_SVG_H

#include "base/mem.h"

/* How a series is drawn: any of these together. */
enum svg_draw {
    SVG_LINE = 1,
    SVG_POINTS = 2,
    SVG_BAND = 4,     /* the spread as an area */
    SVG_WHISKERS = 8, /* the spread at every point */
    SVG_BAR = 16,     /* on top of the bars of the series before */
    SVG_VALUES = 32,  /* with the number beside every point */
    SVG_TOPS = 64     /* small rings; what is far above all else is a triangle at the top of the axis */
};

struct svg_series {
    const char *name;
    const double *x;       /* [n], ascending; NULL: the bars, in their order */
    const double *y;       /* [n]; what is not finite is left out */
    const double *lo, *hi; /* [n]: spread; NULL: none */
    size_t n;
    unsigned draw; /* enum svg_draw */
};

/* One of several areas below each other, with the same axes. */
struct svg_panel {
    const char *name;
    double p50, p95; /* dashed lines; NaN: none */
};

/* A point with a ring around it and a label above the picture. */
struct svg_mark {
    double x, y;
    const char *label;
};

enum { SVG_NOTES = 4, SVG_MARKS = 4 };

/* Texts may hold any bytes: what XML or a reader cannot bear is escaped or replaced, and what is too long is cut. */
struct svg_plot {
    const char *title, *note[SVG_NOTES]; /* notes: lines below the title, what is left is NULL */
    const char *x_name, *y_name;         /* with units; y begins at 0 */
    bool log2_x;                         /* x > 0 on a logarithmic axis with powers of 2 */
    const char *const *bar;              /* [n_bars]: names; NULL: x is a number */
    size_t n_bars;
    const struct svg_series
        *series; /* with panels: those of the first, then as many of the second ... */
    size_t n_series;
    const struct svg_panel *panel; /* [n_panels]; 0: one area */
    size_t n_panels;
    struct svg_mark mark[SVG_MARKS];
    size_t n_marks;
};

/* Appends the whole document. */
int svg_draw(const struct svg_plot *plot, struct buf *out, struct err *err) MUST_USE;

#endif
