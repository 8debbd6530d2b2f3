/* The analytical model of the BMC paper, sections V and VI: decode time as a function of T, the
 * number of allocations, and the T that minimises it. Pure functions; all times in seconds.
 *
 *   time(T) = 2 C1 N (T+1) / (aBW G Q)  +  T C0  +  C1 k N^2/m (1 + 1/T) / bC
 *
 * (BMC paper, eq. 5; eq. 8 adds G Q, GQA group size times cache compression; eq. 9 adds k and m).
 * aBW counts elements read plus elements written per second, bC multiply-accumulates per second of
 * a whole SDPA step. */
#ifndef BMC_COSTMODEL_H
#define BMC_COSTMODEL_H

#include "tune/rate_curve.h"

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

/* Fails unless N >= 2, rates are positive, everything is finite and 1 <= m <= k. */
int cost_check(const struct cost *cost, struct err *err) MUST_USE;

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

#endif
