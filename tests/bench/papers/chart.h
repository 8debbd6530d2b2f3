/* Charts of an entry's results. */
#ifndef BMC_CHART_H
#define BMC_CHART_H

#include "base/json.h"
#include "verdict.h"

/* Appends an SVG with the paper's ratios as bars and ours as points with intervals. */
int chart_ratios(const json_t *const *claims, const struct judged *judged, size_t n, struct buf *out,
                 struct err *err) MUST_USE;

/* Appends the SVG of a "figure" object: title, x_name, y_name, log2_x (true or absent), bars
 * (names) or numbers x, and series, each {"name", "x", "y", "lo", "hi"}; lo and hi may be absent. */
int chart_figure(const json_t *figure, struct buf *out, struct err *err) MUST_USE;

#endif
