/* Helpers for cache policies: write, copy, compact and count the rows of their storage. */
#pragma once

#include "kv/kv_policy.h"

/* Rows per chunk when kv_attach() copies rows. A forward pass with more new rows of a sequence than
 * this is a "long step", whose rows an offloading cache writes to its file layer by layer. */
enum { KV_CHUNK_ROWS = 64 };

/* Implementations of append() and accept() of struct kv_policy, for policies with row_at(). The
 * accept() compacts rows and frees nothing. */
void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                    struct device_addr k, struct device_addr v, size_t stride,
                    const struct kv_queries *queries);

/* The same of rows of a type, with `row` bytes from one to the next and `head` from one head to the next: those of K and
 * of V; `queries`, or NULL, are as of kv_append(). Returns the bytes of the new entries that the cache keeps. */
struct kv_row_source {
    struct device_addr at;
    enum dtype type;
    size_t row, head;
};
size_t kv_rows_store(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                     const struct kv_row_source from[2], const struct kv_queries *queries);
void kv_rows_compact(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n);

/* A list of copies within the backend's memory, which are made, and added to the statistic copied_bytes, whenever
 * it is full and by kv_copies_end(): together, in parallel and in any order. */
enum { KV_COPIES = 256 };
struct kv_copies {
    struct kv *kv;
    size_t n;
    struct memory_copy list[KV_COPIES];
};

static inline void kv_copies_begin(struct kv_copies *copies, struct kv *kv)
{
    copies->kv = kv;
    copies->n = 0;
}

/* Adds a copy of `bytes` bytes, which may be 0, followed by `zeros` bytes of zeros. */
void kv_copies_add(struct kv_copies *copies, struct device_addr to, struct device_addr from,
                   size_t bytes, size_t zeros);
void kv_copies_end(struct kv_copies *copies);

/* A single copy. */
void kv_copy(struct kv *kv, struct device_addr to, struct device_addr from, size_t bytes);

/* Zeroes memory, in parallel. */
void kv_zero(struct kv *kv, struct device_addr from, size_t bytes);

/* Commits memory of rows [from, to) of heads [head, end), in parallel: of storage at `base` in which each head
 * has `stored` rows, head by head. False when memory is short. */
bool kv_commit_memory(const struct kv *kv, struct device_addr base, size_t stored, size_t head,
                      size_t end, size_t from, size_t to);

/* Updates the statistics resident_bytes and peak_bytes: `more` bytes are allocated before `less`
 * bytes are freed. */
void kv_count_memory(struct kv *kv, size_t more, size_t less);
