/* Counters of a folder of blocks, which all processes that use it add to: a small file in the folder. */
#ifndef BMC_KVBLOCK_STATS_H
#define BMC_KVBLOCK_STATS_H

#include <stdbool.h>
#include <stdint.h>

#define KVBLOCK_STATS_NAME "stats"

struct kvblock_counts {
    uint64_t lookups, lookup_tokens, hit_tokens; /* prompts looked up, their tokens, those found */
    uint64_t stored_blocks, evicted_blocks, dropped_blocks;
};

/* Adds counts to those of the folder. Returns false, and adds nothing, if another process does so at the
 * moment, or if the file cannot be written. */
bool kvblock_stats_add(int folder_fd, const struct kvblock_counts *more);

/* The counts of the folder; zeros if there are none. */
struct kvblock_counts kvblock_stats_read(int folder_fd);

#endif
