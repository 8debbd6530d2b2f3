/* Learns acceptance rates by rank. */
#include "decode/spec/tree_rates.h"

#include <string.h>

enum { FIRST_DUE = 32, TYPICAL_WEIGHT = 8, RECORDED_WEIGHT = 256 };

void tree_rates_begin(struct tree_rates *r, const double *rates, size_t ranks, bool recorded)
{
    *r = (struct tree_rates){
        .ranks = ranks, .weight = recorded ? RECORDED_WEIGHT : TYPICAL_WEIGHT, .due = FIRST_DUE};
    memcpy(r->prior, rates, ranks * sizeof *rates);
}

void tree_rates_add(struct tree_rates *r, size_t children, size_t accepted)
{
    children = size_min(children, r->ranks);
    r->nodes += children > 0;
    for (size_t i = 0; i < children; i++)
        r->visited[i]++;
    if (accepted < children)
        r->accepted[accepted]++;
}

bool tree_rates_due(struct tree_rates *r)
{
    if (r->nodes < r->due)
        return false;
    r->due *= 2;
    return true;
}

void tree_rates_get(const struct tree_rates *r, double *rates)
{
    double sum = 0;
    for (size_t i = 0; i < r->ranks; i++) {
        rates[i] = (r->accepted[i] + r->weight * r->prior[i]) / (r->visited[i] + r->weight);
        sum += rates[i];
    }
    for (size_t i = 0; i < r->ranks && sum > 1; i++)
        rates[i] /= sum;
}
