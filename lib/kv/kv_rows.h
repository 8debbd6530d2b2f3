/* Helpers for cache policies: write, compact, zero and count the rows of their storage. */
#ifndef BMC_KV_ROWS_H
#define BMC_KV_ROWS_H

#include <string.h>

#include "kv/kv_policy.h"

/* Rows per chunk when kv_attach() copies rows. A forward pass with more new rows of a sequence than
 * this is a "long step", whose rows an offloading cache writes to its file layer by layer. */
enum { KV_CHUNK_ROWS = 64 };

/* Bytes of K, or of V, of one token in one head. */
static inline size_t kv_row_bytes(const struct kv *kv)
{
    return dtype_row_bytes(kv->setup.shape.type, kv->setup.shape.head_dim);
}

/* Returns a copy of *kv with the shape of the largest shard, only to compute memory footprints. */
static inline struct kv kv_of_largest_shard(const struct kv *kv)
{
    struct kv largest = *kv;
    largest.setup.shape.layers = size_max(largest.setup.shape.layers, kv->spec.shards.layers);
    largest.setup.shape.kv_heads = size_max(largest.setup.shape.kv_heads, kv->spec.shards.kv_heads);
    return largest;
}

/* Casts away the const of view pointers, for policies that write to their own memory. */
static inline char *kv_mutable(const void *rows) { return (char *)(uintptr_t)rows; }

/* Implementations of append() and accept() of struct kv_policy, for policies with row_at(). The
 * accept() compacts rows and frees nothing. */
void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                    const float *v, size_t stride);
void kv_rows_compact(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n);

/* Zeroes memory, in parallel. */
void kv_zero(char *from, size_t bytes);

/* Commits the reserved memory of `rows` rows in each of `heads` heads, in parallel; heads are
 * `stride` bytes apart, the first one at `at`. False when memory is short. */
bool kv_commit_memory(const struct kv *kv, char *at, size_t stride, size_t heads, size_t rows);

/* Updates the statistics resident_bytes and peak_bytes: `more` bytes are allocated before `less`
 * bytes are freed. */
void kv_count_memory(struct kv *kv, size_t more, size_t less);

/* memcpy() that adds to the statistic copied_bytes; policies that copy K or V in other ways call
 * kv_count_copied(). */
static inline void kv_copy(struct kv *kv, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    kv_count_copied(kv, bytes);
}

#endif
