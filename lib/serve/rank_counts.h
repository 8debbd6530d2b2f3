/* Counts of a rank (tokens, times, memory), and their sum over all ranks. */
#ifndef BMC_RANK_COUNTS_H
#define BMC_RANK_COUNTS_H

#include "decode/gen_types.h"

struct rank_counts {
    struct gen_stats gen;
    struct kv_stats kv;
    size_t pss_bytes; /* proportional set size: pages shared by n processes count 1/n */
};

/* Counts of this process. */
struct rank_counts rank_counts_now(const struct session *session, const struct gen_stats *stats);

/* Adds counts; takes the maximum of times, as ranks run in parallel. logits_hash is unchanged. */
void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one);

#endif
