/* Small things that storage of every kind needs. */
#ifndef BMC_KV_ROWS_H
#define BMC_KV_ROWS_H

#include <string.h>

#include "kv/kv_policy.h"

/* Rows that are copied into a cache in one go; those of a step of more may be put away layer by layer. */
enum { KV_PIECE_ROWS = 64 };

/* Bytes of one row of one head. */
static inline size_t kv_row_bytes(const struct kv *kv)
{
    return dtype_row_bytes(kv->setup.shape.type, kv->setup.shape.head_dim);
}

/* Views are const; storage writes through its own pointers. */
static inline char *kv_mutable(const void *rows) { return (char *)(uintptr_t)rows; }

/* For policies with a `row_at`: their append; one row of all layers and heads to another place; and the rows
 * extra[0..n) moved down behind the first `rows`, as keep wants it. */
void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                    const float *v, size_t stride);
void kv_rows_copy(struct kv *kv, size_t to, size_t to_row, size_t from, size_t from_row);
void kv_rows_close_up(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n);

/* Zeros, on all threads where that pays. */
void kv_clear(char *from, size_t bytes);

/* Makes `rows` rows present in every head of K and V of every layer, on all threads; the first head's are at `at`, each
 * next one's `stride` bytes on. False when memory cannot be had. */
bool kv_commit_rows(const struct kv *kv, char *at, size_t stride, size_t rows);

/* Keeps resident and peak bytes; `more` comes before `less` goes. */
void kv_count_bytes(struct kv *kv, size_t more, size_t less);

/* Copies bytes of K or V, and counts them. Every copy of a policy goes through here, or says kv_count_copied(). */
static inline void kv_copy(struct kv *kv, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    kv_count_copied(kv, bytes);
}

#endif
