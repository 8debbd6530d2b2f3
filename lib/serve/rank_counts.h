/* Counts of a rank (tokens, times, memory), and their sum over all ranks. */
#pragma once

#include "attn/attn.h"
#include "decode/gen_types.h"

struct rank_counts {
    struct gen_stats gen;
    struct kv_stats kv;
    struct attn_counts attn;
    size_t pss_bytes; /* proportional set size: pages shared by n processes count 1/n */
};

/* A count, which is summed over ranks, or a time, of which the maximum is taken, as ranks run in parallel. */
struct rank_count {
    const char *name; /* of the field of --stats; NULL: it is not one by itself */
    bool is_time;     /* a double, in milliseconds; else a size_t */
    size_t at;        /* offset in struct rank_counts */
};
enum { RANK_COUNTS = 70 };
extern const struct rank_count rank_count[RANK_COUNTS];

/* Collects this process's counts: `stats`, statistics of the session's KV cache, and memory. */
struct rank_counts rank_counts_now(const struct session *session, const struct gen_stats *stats);

/* Adds one rank's counts to `sum`. Leaves sum->gen.logits_hash unchanged. */
void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one);
