/* Rates of matches by their length and by how many occurrences agree. */
#include "decode/spec/match_rates.h"

#define DECAY  0.995 /* of earlier tokens of a class, per token */
#define WEIGHT 4.0   /* tokens of a class for which the rate to begin with counts */

/* Rates to begin with, by match_class(): lower than those of chats, translations and summaries of small models. */
static const double begin[MATCH_LENGTHS][MATCH_SHARES] = {
    {0.20, 0.30, 0.40, 0.60}, {0.25, 0.35, 0.50, 0.70}, {0.30, 0.40, 0.60, 0.75},
    {0.35, 0.45, 0.70, 0.85}, {0.40, 0.50, 0.80, 0.90}, {0.50, 0.60, 0.88, 0.95},
    {0.60, 0.70, 0.92, 0.97},
};

uint8_t match_class(size_t length, size_t agree, size_t all)
{
    static const size_t longest[MATCH_LENGTHS - 1] = {2, 3, 5, 8, 15, 31};
    size_t row = 0;
    while (row < MATCH_LENGTHS - 1 && length > longest[row])
        row++;
    const size_t share = agree < all ? 2 * agree >= all : all < 3 ? 2 : 3;
    return (uint8_t)(row * MATCH_SHARES + share);
}

double match_rate(const struct match_rates *rates, uint8_t class)
{
    const size_t row = class / MATCH_SHARES, share = class % MATCH_SHARES;
    return (rates->right[row][share] + WEIGHT * begin[row][share]) /
           (rates->reached[row][share] + WEIGHT);
}

void match_rates_add(struct match_rates *rates, uint8_t class, bool right)
{
    double *n = &rates->reached[class / MATCH_SHARES][class % MATCH_SHARES],
           *n_right = &rates->right[class / MATCH_SHARES][class % MATCH_SHARES];
    *n = DECAY * *n + 1;
    *n_right = DECAY * *n_right + right;
}
