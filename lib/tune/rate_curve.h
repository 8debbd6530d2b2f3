/* A measured rate of the machine as a function of data size: a core reads ten times faster from its
 * caches than from memory, so a single number would be wrong. */
#ifndef BMC_RATE_CURVE_H
#define BMC_RATE_CURVE_H

#include "quant/dtype.h"
#include "base/err.h"

/* copy: elements read plus written per second by growing a cache, first touch included (alpha *
 * BW). sdpa: multiply-accumulates per second of an SDPA step (beta * C). alloc: seconds of an
 * allocation call without touching pages (C0). */
enum curve_what { CURVE_COPY, CURVE_SDPA, CURVE_ALLOC, CURVE_WHATS };
#define CURVE_NAMES "copy_elem_s", "sdpa_mac_s", "alloc_s"

enum { CURVE_POINTS = 12 };

struct curve_point {
    /* bytes of K and V in one layer: of one sequence (copy, alloc) or of the batch (sdpa) */
    double bytes;
    double value;  /* median over samples */
    double spread; /* interquartile range divided by the median */
    size_t samples;
};

struct rate_curve {
    enum curve_what what;
    char attn[16]; /* attention backend; "-" for copy and alloc */
    enum dtype type;
    size_t width; /* D = H * d: query heads times head size */
    size_t group; /* GQA group size */
    size_t rows;  /* query positions per sequence: 1, or k with speculation */
    size_t batch; /* B */
    /* CPU caches were evicted before every sample */
    bool cold;
    size_t n;
    struct curve_point at[CURVE_POINTS]; /* measured points, ascending by bytes */
};

const char *rate_curve_name(enum curve_what what);

/* The value at a size in bytes: log-log interpolation, constant beyond the ends. n > 0. */
double rate_curve_at(const struct rate_curve *curve, double bytes);

/* Checks that sizes ascend and that all numbers are positive and finite. */
int rate_curve_check(const struct rate_curve *curve, struct err *err) MUST_USE;

/* The closest of n curves: same rate, backend, data type and hot/cold state as `like`, then nearest
 * in query positions, G, batch and width; NULL: none matches. */
const struct rate_curve *rate_curve_find(const struct rate_curve *curve, size_t n,
                                         const struct rate_curve *like);

/* True if both curves measure the same configuration. */
bool rate_curve_same(const struct rate_curve *a, const struct rate_curve *b);

#endif
