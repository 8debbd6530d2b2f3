/* A measured constant of the machine as a function of size: one core reads ten times faster from its caches than from
 * memory, so that a single number would be wrong. */
#ifndef BMC_CURVE_H
#define BMC_CURVE_H

#include "base/dtype.h"
#include "base/err.h"

/* copy: elements read plus written per second by growing and copying, first touch included (alpha * BW).
 * sdpa: multiply-accumulates per second of the whole SDPA step (beta * C).
 * alloc: seconds of an allocation call, with no page touched (C0). */
enum curve_what { CURVE_COPY, CURVE_SDPA, CURVE_ALLOC, CURVE_WHATS };
#define CURVE_NAMES "copy_elem_s", "sdpa_mac_s", "alloc_s"

enum { CURVE_POINTS = 12 };

struct curve_point {
    double bytes;  /* of K and V of one layer: of one sequence (copy, alloc) or of the batch (sdpa) */
    double value;  /* median */
    double spread; /* distance between the quartiles, divided by the median */
    size_t samples;
};

struct curve {
    enum curve_what what;
    char attn[16]; /* backend; "-" where none takes part */
    enum dtype type;
    size_t width; /* D = H * d */
    size_t group; /* G */
    size_t rows;  /* query rows of a sequence: 1, or k of speculation */
    size_t batch; /* B */
    bool
        cold; /* the caches were swept before every sample, as weights do between two steps of a model */
    size_t n;
    struct curve_point at[CURVE_POINTS]; /* ascending by bytes */
};

const char *curve_name(enum curve_what what);

/* The value at a size: straight between points on logarithmic axes, constant beyond the ends. The curve has a point. */
double curve_at(const struct curve *curve, double bytes);

/* Points ascending, sizes and values positive and finite. */
int curve_check(const struct curve *curve, struct err *err) MUST_USE;

/* Of `n` curves the one that fits best: the same constant, backend, type and state, and then nearest in G, query rows,
 * batch and width; NULL when there is none of that kind. */
const struct curve *curve_find(const struct curve *curve, size_t n, const struct curve *like);

/* All that identifies a curve is the same. */
bool curve_same(const struct curve *a, const struct curve *b);

#endif
