/* What a rank has counted, and the sum over all. */
#ifndef BMC_GEN_COUNTS_H
#define BMC_GEN_COUNTS_H

#include "gen.h"

struct rank_counts {
    struct gen_stats gen;
    struct kv_stats kv;
    size_t pss_bytes; /* memory, where several processes have it each its share */
};

/* Of this process. */
struct rank_counts rank_counts_now(const struct gen *gen, const struct gen_stats *stats);

/* Counts are added; of times, which pass at once, the longest stays. Hashes are left alone. */
void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one);

#endif
