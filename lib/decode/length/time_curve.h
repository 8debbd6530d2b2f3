/* Measured times by an amount of work, such as the tokens of a forward pass: a staircase, of which some
 * points are known. */
#ifndef BMC_TIME_CURVE_H
#define BMC_TIME_CURVE_H

#include "base/base.h"

enum {
    TIME_POINTS = 48,
    TIME_STALE = 256 /* measurements after which a time is forgotten */
};

/* The mean time of `n` measurements, and the number of the last one. */
struct time_point {
    size_t work, n, at;
    double ms;
};

struct time_curve {
    struct time_point point[TIME_POINTS]; /* [n], in ascending order of work */
    size_t n, measured;                   /* points; measurements so far */
    double slope;                         /* ms per unit of much work; 0: unknown */
};

/* Adds a measurement. If it is much slower than those before it, it was interrupted, and counts less; if it is much
 * faster than one or two, they were. */
void time_curve_add(struct time_curve *curve, size_t work, double ms);

/* The expected time, 0 if nothing is known. Between points it is interpolated. Beyond the last one it is that
 * time, or the slope's if that is more; with an unknown slope it rises less than before the last point,
 * so that longer passes are tried. Interruptions and cold memory only make passes
 * slower, so a time above that of more work is replaced by it, and one that was measured few times is expected to
 * be shorter. */
double time_curve_at(const struct time_curve *curve, size_t work);

/* The most work that was measured of late; 0: none. */
size_t time_curve_last(const struct time_curve *curve);

/* The point measured last of those with work from `least` to `most`, or NULL. */
const struct time_point *time_curve_near(const struct time_curve *curve, size_t least, size_t most);

#endif
