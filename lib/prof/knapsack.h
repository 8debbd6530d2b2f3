/* One choice of each item whose sum of bytes fits, with the least sum of costs: the multiple-choice knapsack problem by
 * dynamic programming over the items, for all capacities at once. */
#pragma once

#include "base/mem.h"
#include "quant/dtype.h"

/* A way to store a matrix. */
struct type_choice {
    enum dtype type;
    size_t bytes;
    double kld; /* cost */
};

/* Capacities are bytes beyond those of all smallest choices, in so many steps. */
enum { KNAPSACK_STEPS = 1 << 16 };

struct knapsack {
    double *least;       /* [KNAPSACK_STEPS + 1]: the least sum of costs by capacity */
    unsigned char *pick; /* [items][KNAPSACK_STEPS + 1]: the choice of an item beside those before it */
    double step_bytes;   /* at least 1 */
};

/* For `items` items, whose largest choices have `span` bytes more than their smallest, together. */
int knapsack_open(struct knapsack *sack, size_t items, size_t span, struct err *err) MUST_USE;
void knapsack_release(struct knapsack *sack);

/* Adds items in order: choices ascend by bytes, n from 1 to 255. Bytes are rounded down to steps. */
void knapsack_add(struct knapsack *sack, size_t item, const struct type_choice *choice, size_t n);

/* The choice of an item within `steps`, which become those that are left to the items before it: take items from the last
 * to the first. */
size_t knapsack_take(const struct knapsack *sack, size_t item, const struct type_choice *choice,
                     size_t *steps);
