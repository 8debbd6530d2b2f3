/* How often a token is right that followed an earlier occurrence of the last tokens: learnt from all drafts of a run,
 * verified or not, since the text shows what would have been accepted. */
#pragma once

#include "base/base.h"

enum { MATCH_LENGTHS = 7, MATCH_SHARES = 4 };

struct match_rates {
    double reached[MATCH_LENGTHS][MATCH_SHARES], right[MATCH_LENGTHS][MATCH_SHARES];
};

/* The class of a draft token: the tokens before it that match, those drafted included, and the occurrences of which
 * `agree` of `all` go on with it. */
uint8_t match_class(size_t length, size_t agree, size_t all);

/* The probability that a token of the class is right; before anything was learnt a low one. */
double match_rate(const struct match_rates *rates, uint8_t class);

/* After the text has reached a draft token, all of those before it being right. */
void match_rates_add(struct match_rates *rates, uint8_t class, bool right);
