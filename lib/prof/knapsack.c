/* The multiple-choice knapsack problem. */
#include "prof/knapsack.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

int knapsack_open(struct knapsack *sack, size_t items, size_t span, struct err *err)
{
    *sack = (struct knapsack){
        .least = mem_zalloc(KNAPSACK_STEPS + 1, sizeof *sack->least),
        .pick = mem_zalloc(items, KNAPSACK_STEPS + 1),
        .step_bytes = fmax(1, (double)span / KNAPSACK_STEPS),
    };
    return sack->least && sack->pick ? 0 : err_no_memory(err, "choices of %zu matrices", items);
}

void knapsack_release(struct knapsack *sack)
{
    free(sack->least);
    free(sack->pick);
    *sack = (struct knapsack){0};
}

static size_t steps_of(const struct knapsack *sack, const struct type_choice *choice, size_t k)
{
    return (size_t)((double)(choice[k].bytes - choice[0].bytes) / sack->step_bytes);
}

void knapsack_add(struct knapsack *sack, size_t item, const struct type_choice *choice, size_t n)
{
    unsigned char *pick = sack->pick + item * (KNAPSACK_STEPS + 1);
    size_t steps[UCHAR_MAX];
    for (size_t k = 0; k < n; k++)
        steps[k] = steps_of(sack, choice, k);
    for (size_t most = KNAPSACK_STEPS + 1; most-- > 0;) { /* sums of fewer steps still lack the item */
        double least = INFINITY;
        for (size_t k = 0; k < n && steps[k] <= most; k++) {
            const double cost = sack->least[most - steps[k]] + choice[k].kld;
            if (cost < least) {
                least = cost;
                pick[most] = (unsigned char)k;
            }
        }
        sack->least[most] = least;
    }
}

size_t knapsack_take(const struct knapsack *sack, size_t item, const struct type_choice *choice,
                     size_t *steps)
{
    const size_t k = sack->pick[item * (KNAPSACK_STEPS + 1) + *steps];
    *steps -= steps_of(sack, choice, k);
    return k;
}
