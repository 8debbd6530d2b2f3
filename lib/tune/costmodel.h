/* The analytical model of the BMC paper, sections V and VI: decode time as a function of T, the
 * number of allocations, and the T that minimises it. Pure functions; all times in seconds.
 *
 *   time(T) = 2 C1 N (T+1) / (aBW G Q)  +  T C0  +  C1 k N^2/m (1 + 1/T) / bC
 *
 * (BMC paper, eq. 5; eq. 8 adds G Q, GQA group size times cache compression; eq. 9 adds k and m).
 * aBW counts elements read plus elements written per second, bC multiply-accumulates per second of
 * a whole SDPA step. */
#pragma once

#include "base/err.h"
#include "quant/dtype.h"

/* ---- rate curves ----
 *
 * A measured rate of the machine as a function of data size: a core reads ten times faster from its
 * caches than from memory, so a single number would be wrong. */

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

/* ---- the model ---- */

/* A decode from an empty cache to N tokens with constant rates. */
struct cost {
    size_t N;
    /* C1 = B * L * D: elements of K per token, over all layers, sequences and query heads */
    double elements;
    double copy_elem_s; /* elements read plus written per second: alpha * BW */
    double sdpa_mac_s;  /* SDPA rate at k query positions: beta * C */
    /* C0: time of the allocation calls of one growth, over all layers and sequences; may be 0 */
    double growth_s;
    double gq; /* factor G * Q of BMC paper, eq. 8; 1 for f32 without grouped-query attention */
    /* query positions, accepted tokens per step (BMC paper, eq. 9); 1, 1: no speculation */
    double k, m;
};

/* Decode time for a real-valued T (BMC paper, eq. 5, 8 and 9). Requires cost_check(). */
double cost_seconds(const struct cost *cost, double T);

/* Sets *T to the one of least time, not rounded or bounded (BMC paper, eq. 6; eq. 7 if C0 is 0). */
int cost_closed_T(const struct cost *cost, double *T, struct err *err) MUST_USE;

/* A decode with size-dependent rates, summed growth by growth (BMC paper, eq. 4). */
struct cost_config {
    size_t N;
    size_t layers, batch;
    size_t width;                                 /* D = H * d */
    double row_bytes;                             /* K and V of one token in one layer, as stored */
    double gq;                                    /* G * Q, as in struct cost */
    double k, m;                                  /* as in struct cost */
    const struct rate_curve *copy, *sdpa, *alloc; /* alloc may be NULL: C0 = 0 */
};

int cost_config_check(const struct cost_config *config, struct err *err) MUST_USE;

/* Decode time with T allocations: growths of r = ceil(N / T) tokens, the last to N. 1 <= T <= N. */
double cost_config_seconds(const struct cost_config *config, size_t T);

/* Copying and allocation of one growth to `cap` entries, of all layers and sequences (BMC paper,
 * eq. 1 and 8). */
double cost_growth_seconds(const struct cost_config *config, double cap);

/* The same decode with constant rates: the curves' rates at N / 2 tokens. */
struct cost cost_constant_rates(const struct cost_config *config);

/* Three estimates of the best T, and their predicted times. */
struct cost_answer {
    double closed; /* cost_closed_T() of cost_constant_rates() */
    size_t pow2;   /* the faster of the two powers of two around `closed` */
    size_t least;  /* the fastest T of all from 1 to N that a growth step r gives: ceil(N / r) */
    double pow2_s, least_s;
};

/* Sets all members but `least` and `least_s`. */
int cost_answer(const struct cost_config *config, struct cost_answer *answer, struct err *err) MUST_USE;

/* Sets `least` and `least_s`; beyond N = 32768 only T within a factor of 8 of pow2 are
 * searched. */
void cost_least(const struct cost_config *config, struct cost_answer *answer);
