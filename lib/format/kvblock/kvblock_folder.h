/* A folder of blocks of KV entries that many processes share: blocks appear complete under their final
 * names, are checked whenever they are read, and the least recently used ones are removed when the
 * folder exceeds its size. Nothing that a process leaves behind when it is killed stops the others:
 * unfinished files are recognised and removed, locks end with the process. */
#pragma once

#include "format/kvblock/kvblock.h"
#include "format/kvblock/kvblock_evict.h"
#include "format/kvblock/kvblock_stats.h"

struct kvblock_folder;

/* Gets one sentence about a block or the folder that cannot be used: at most once per kind. */
struct kvblock_warn {
    void (*say)(void *arg, const char *sentence);
    void *arg;
};

/* Opens the folder, and creates it if it is missing; `size`: limit on the bytes of its blocks. Removes
 * unfinished files of processes that have ended. */
int kvblock_folder_open(struct kvblock_folder **folder, const char *path, size_t size,
                        struct kvblock_warn warn, struct err *err) MUST_USE;
void kvblock_folder_close(struct kvblock_folder *folder); /* NULL is accepted */

/* Counts a prompt of which `tokens` were looked up and `found` found, for kvblock_folder_describe(). */
void kvblock_folder_count(struct kvblock_folder *folder, size_t tokens, size_t found);

/* The blocks in a folder, and what all processes together have counted. */
int kvblock_folder_describe(const char *path, struct kvblock_usage *usage,
                            struct kvblock_counts *counts, struct err *err) MUST_USE;

enum kvblock_found { KVBLOCK_MISSING, KVBLOCK_FOUND, KVBLOCK_DAMAGED };

/* True if there is a file for the key, of KV entries or of a recurrent state; whether it is intact is seen when it
 * is read. */
bool kvblock_folder_has(const struct kvblock_folder *folder, const struct hash *key, bool state);

/* Reads the block with the head *want, of either kind, to `block`, which has room for the head and its `bytes`, and checks
 * it. One that is damaged, no regular file, another user's or writable by others is removed. `index`, the
 * block's number in its sequence, orders blocks of one use: later ones are evicted first. */
enum kvblock_found kvblock_folder_get(struct kvblock_folder *folder, const struct kvblock_head *want,
                                      size_t index, struct kvblock_head *block);

/* True until writing has failed. */
bool kvblock_folder_writes(const struct kvblock_folder *folder);

/* Writes a block, whose head is complete but for its hash, and evicts others if the folder is full.
 * Returns false if that fails: then the folder is read only from now on, after a warning. */
bool kvblock_folder_put(struct kvblock_folder *folder, struct kvblock_head *block, size_t index);

/* Claims the block with the key for this process, which is about to compute it; false if another
 * process has done so and is alive. Claims of one process do not exclude each other. */
bool kvblock_folder_claim(struct kvblock_folder *folder, const struct hash *key);
void kvblock_folder_release(struct kvblock_folder *folder, const struct hash *key);
