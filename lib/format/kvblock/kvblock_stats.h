/* Counters of a folder of blocks, which all processes that use it add to: a small file in the folder. */
#pragma once

#include "base/err.h"

#define KVBLOCK_STATS_NAME "stats"

struct kvblock_counts {
    uint64_t lookups, lookup_tokens, hit_tokens; /* prompts looked up, their tokens, those found */
    uint64_t stored_blocks, evicted_blocks, dropped_blocks;
};

/* Whether the folder has a file of counters, which may be damaged, or another file of its name, which is left alone. */
enum kvblock_stats_state { KVBLOCK_STATS_MISSING, KVBLOCK_STATS_OWN, KVBLOCK_STATS_FOREIGN };
enum kvblock_stats_state kvblock_stats_state(int folder_fd);

/* Adds counts to those of the folder. False: nothing was added, since another process does so at the moment
 * (which is awaited for some 20 ms if `wait`), or since the file cannot be written, is another user's or holds no counters. */
bool kvblock_stats_add(int folder_fd, const struct kvblock_counts *more, bool wait);

/* Reads the counts of the folder, which may be another user's; zeros if the file does not exist. Fails if
 * it exists and cannot be used. */
int kvblock_stats_read(int folder_fd, struct kvblock_counts *counts, bool *exists,
                       struct err *err) MUST_USE;
