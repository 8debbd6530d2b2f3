/* What a rank has counted, and the sum over all. */
#ifndef BMC_GEN_COUNTS_H
#define BMC_GEN_COUNTS_H

#include "gen.h"

struct rank_counts {
    struct gen_stats gen;
    struct kv_stats kv;
};

/* Counts are added; of times, which pass at once, the longest stays. Hashes are left alone. */
void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one);

#endif
