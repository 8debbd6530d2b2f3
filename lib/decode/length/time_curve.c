/* Measured times by an amount of work. */
#include "decode/length/time_curve.h"

#include <math.h>
#include <string.h>

enum {
    OLD = 32,       /* measurements after which a point counts as measured once */
    INTERRUPTED = 2 /* measurements that may all have been interrupted */
};

#define SMOOTHING 0.125 /* weight of a measurement in the mean of its point */
#define OUTLIER   1.2   /* one counts as no slower than so many times the mean: it was interrupted */
#define UNSURE    0.1   /* of a time measured once, which may be too long; less when measured again */
#define OPTIMISM  0.7   /* of the mean rise between points, expected beyond the last */
#define COLD      1.3   /* a slope is wrong if it exceeds the mean of a pass so many times */
#define FIRST     0.1   /* of the only point's time, expected to be added by one more unit of work */

static bool is_stale(const struct time_curve *c, size_t i)
{
    return c->measured - c->point[i].at >= TIME_STALE;
}

static void remove_point(struct time_curve *c, size_t i)
{
    memmove(&c->point[i], &c->point[i + 1], (--c->n - i) * sizeof *c->point);
}

/* Forgets stale points, and the oldest one if there are too many. */
static void forget(struct time_curve *c)
{
    size_t oldest = 0;
    for (size_t i = c->n; i-- > 0;)
        if (is_stale(c, i))
            remove_point(c, i);
    for (size_t i = 1; i < c->n; i++)
        oldest = c->point[i].at < c->point[oldest].at ? i : oldest;
    if (c->n == TIME_POINTS)
        remove_point(c, oldest);
}

void time_curve_add(struct time_curve *c, size_t work, double ms)
{
    size_t i = 0;
    c->measured++;
    forget(c);
    while (i < c->n && c->point[i].work < work)
        i++;
    struct time_point *p = &c->point[i];
    if (i == c->n || p->work != work) {
        memmove(p + 1, p, (c->n++ - i) * sizeof *p);
        *p = (struct time_point){.work = work, .at = c->measured, .ms = ms};
    }
    p->n = c->measured - p->at > OLD ? size_min(p->n, 1) + 1 : p->n + 1;
    p->at = c->measured;
    if (p->n <= INTERRUPTED + 1 && ms * OUTLIER < p->ms)
        p->ms = ms;
    p->ms += fmax(SMOOTHING, 1 / (double)p->n) * (fmin(ms, OUTLIER * p->ms) - p->ms);
}

/* The expected time of point i. The first is not expected to be shorter than measured. */
static double point_ms(const struct time_curve *c, size_t i)
{
    double least = INFINITY;
    for (size_t j = i; j < c->n; j++)
        least = fmin(least, c->point[j].ms * (1 - (j > 0 ? UNSURE : 0) / (double)c->point[j].n));
    return least;
}

/* The given slope, at most that of passes so far, for none took less; 0 if it exceeds that by far: memory was cold. */
static double slope_of(const struct time_curve *c)
{
    double most = INFINITY;
    for (size_t i = 0; i < c->n; i++)
        most = fmin(most, c->point[i].ms / (double)c->point[i].work);
    return c->slope < COLD * most ? fmin(c->slope, most) : 0;
}

static double beyond(const struct time_curve *c, size_t work)
{
    const struct time_point *first = &c->point[0], *last = &c->point[c->n - 1];
    const double ms = point_ms(c, c->n - 1), slope = slope_of(c);
    if (slope > 0)
        return fmax(ms, slope * (double)work);
    const double rise =
        c->n > 1 ? OPTIMISM * (ms - point_ms(c, 0)) / (double)(last->work - first->work) : FIRST * ms;
    return ms + (double)(work - last->work) * rise;
}

double time_curve_at(const struct time_curve *c, size_t work)
{
    size_t hi = 0;
    while (hi < c->n && c->point[hi].work < work)
        hi++;
    if (c->n == 0)
        return 0;
    if (hi == c->n)
        return beyond(c, work);
    const size_t at = c->point[hi].work;
    const double ms = point_ms(c, hi);
    if (hi == 0) /* as if it rose like an unknown curve */
        return ms * (1 / FIRST + (double)work) / (1 / FIRST + (double)at);
    const double below = point_ms(c, hi - 1),
                 share = (double)(work - c->point[hi - 1].work) / (double)(at - c->point[hi - 1].work);
    return below + share * (ms - below);
}

size_t time_curve_last(const struct time_curve *c) { return c->n ? c->point[c->n - 1].work : 0; }

const struct time_point *time_curve_near(const struct time_curve *c, size_t least, size_t most)
{
    const struct time_point *near = NULL;
    for (size_t i = 0; i < c->n; i++) {
        const struct time_point *p = &c->point[i];
        if (p->work >= least && p->work <= most && (!near || p->at > near->at))
            near = p;
    }
    return near;
}
