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

/* Opens the folder, and creates it if it is missing; `size`: limit on the bytes of its blocks. Takes the same time
 * however many there are: what the folder holds is counted, and unfinished files of processes that have ended are
 * removed, before the first block is written. */
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

/* The time of use of blocks, in ns: a block has that of the request, less KVBLOCK_USE_NS for each block before it, so
 * that later ones, which are of no use without the earlier ones, are evicted first. */
enum { KVBLOCK_USE_NS = 1000 };
uint64_t kvblock_now(void);

enum { KVBLOCK_AT_ONCE = 64 }; /* most blocks of a call */

/* Reads n consecutive blocks, of the same kind and with the heads want[n], in parallel, and checks them: to `blocks`, which
 * has room for n, kvblock_stride() bytes apart. `used`: time of use of the first. Returns how many were found before the
 * first that was not, and in *next whether that one is missing or damaged; KVBLOCK_FOUND: there is none. One that is
 * damaged, no regular file, another user's or writable by others is removed. */
size_t kvblock_folder_get(struct kvblock_folder *folder, const struct kvblock_head *want, size_t n,
                          uint64_t used, struct kvblock_head *blocks, enum kvblock_found *next);

/* True until writing has failed. */
bool kvblock_folder_writes(const struct kvblock_folder *folder);

/* Writes a block, whose head is complete but for its hash, and evicts others if the folder is full.
 * Returns false if that fails: then the folder is read only from now on, after a warning. */
bool kvblock_folder_put(struct kvblock_folder *folder, struct kvblock_head *block, uint64_t used);

/* Claims the block with the key for this process, which is about to compute it; false if another
 * process has done so and is alive. Claims of one process do not exclude each other. */
bool kvblock_folder_claim(struct kvblock_folder *folder, const struct hash *key);
void kvblock_folder_release(struct kvblock_folder *folder, const struct hash *key);
