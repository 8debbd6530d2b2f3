/* The analytical model of the BMC paper, V and VI: what T allocations cost, and which T costs least.
 * Pure functions; seconds throughout.
 *
 *   time(T) = 2 C1 N (T+1) / (aBW G Q)  +  T C0  +  C1 k N^2/m (1 + 1/T) / bC        (eq. 5; 8 with G Q; 9 with k, m)
 *
 * aBW counts elements read plus elements written per second, bC multiply-accumulates per second of a whole SDPA step. */
#ifndef BMC_COSTMODEL_H
#define BMC_COSTMODEL_H

#include "tune/curve.h"

/* One decode from empty to N rows, with constant rates. */
struct cost {
    size_t N;
    double
        elements; /* C1 = B * L * D: elements of one row of K, all layers and sequences, all query heads */
    double copy_elem_s; /* alpha * BW */
    double sdpa_mac_s;  /* beta * C, at k query rows */
    double
        growth_s; /* C0: the allocation calls of one growth event of all layers and sequences; may be 0 */
    double shrink; /* G * Q (eq. 8); 1 where every query head has its own f32 rows */
    double k, m;   /* candidates and accepted tokens of a step (eq. 9); 1 and 1 without speculation */
};

/* N of at least 2, rates positive, everything finite, 1 <= m <= k. */
int cost_check(const struct cost *cost, struct err *err) MUST_USE;

/* Eq. 5, 8 and 9 at a T that need not be whole. The cost has been checked. */
double cost_seconds(const struct cost *cost, double T);

/* Where the derivative is 0 (eq. 6 solved for T; eq. 7 where C0 is 0), not rounded, not bounded. */
int cost_closed_T(const struct cost *cost, double *T, struct err *err) MUST_USE;

/* One decode whose rates depend on the size of what is copied and multiplied: eq. 4, growth by growth. */
struct cost_cell {
    size_t N;
    size_t layers, batch;
    size_t width;     /* D = H * d */
    double row_bytes; /* K and V of one row of one layer and sequence, as stored */
    double shrink;    /* as above */
    double k, m;      /* as above */
    const struct curve *copy, *sdpa, *alloc; /* alloc may be NULL: C0 is 0 */
};

int cost_cell_check(const struct cost_cell *cell, struct err *err) MUST_USE;

/* Seconds with r = ceil(N / T) rows a growth; the last growth ends at N. 1 <= T <= N. */
double cost_cell_seconds(const struct cost_cell *cell, size_t T);

/* The cell with constant rates: those at N/2 rows, around which most of its time goes. */
struct cost cost_of_cell(const struct cost_cell *cell);

/* The three answers, for a reader to see when they differ. */
struct cost_answer {
    double closed; /* cost_closed_T() of cost_of_cell() */
    size_t pow2;   /* of the powers of two around it the one whose cost_cell_seconds() are less */
    size_t least;  /* of all T from 1 to N; T as it really happens, ceil(N / r) */
    double pow2_s, least_s;
};

/* All but `least`. */
int cost_answer(const struct cost_cell *cell, struct cost_answer *answer, struct err *err) MUST_USE;

/* Adds `least`: beyond 32768 rows only T within a factor of 8 of pow2 are looked at. */
void cost_least(const struct cost_cell *cell, struct cost_answer *answer);

#endif
