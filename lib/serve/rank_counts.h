/* Counts of a rank (tokens, times, memory), and their sum over all ranks. */
#ifndef BMC_RANK_COUNTS_H
#define BMC_RANK_COUNTS_H

#include "decode/gen_types.h"

struct rank_counts {
    struct gen_stats gen;
    struct kv_stats kv;
    size_t pss_bytes; /* proportional set size: pages shared by n processes count 1/n */
};

/* Collects this process's counts: `stats`, statistics of the session's KV cache, and memory. */
struct rank_counts rank_counts_now(const struct session *session, const struct gen_stats *stats);

/* Adds one rank's counts to `sum`; of times takes the maximum, as ranks run in parallel. Leaves
 * sum->gen.logits_hash unchanged. */
void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one);

#endif
