/* Sparse heads: most heads look at the first rows and at the last ones only; those that look far are listed, as "layer head" a
 * line (headinfer paper, appendix D). Of the others a cache need not keep more, and attention sees no more.
 *
 *   sink 4        rows at the beginning that a sparse head sees
 *   recent 256    and so many last ones, that of the query among them
 *   0 3           KV head 3 of layer 0 sees all; what is not listed is sparse
 */
#ifndef BMC_KV_SPARSE_H
#define BMC_KV_SPARSE_H

#include "base/err.h"

enum { SPARSE_SINK = 4, SPARSE_RECENT = 256 }; /* where a list does not say */

struct kv_sparse {
    size_t layers, kv_heads;
    size_t sink, recent; /* rows */
    size_t n;            /* sparse heads */
    bool *is;            /* [layers][kv_heads]; NULL: none is sparse */
};

/* A list of a model's heads. On error nothing is left to release. */
int kv_sparse_parse(struct kv_sparse *sparse, const char *text, size_t size, const char *name,
                    size_t layers, size_t kv_heads, struct err *err) MUST_USE;
int kv_sparse_open(struct kv_sparse *sparse, const char *path, size_t layers, size_t kv_heads,
                   struct err *err) MUST_USE;
int kv_sparse_copy(struct kv_sparse *to, const struct kv_sparse *from, struct err *err) MUST_USE;
void kv_sparse_release(struct kv_sparse *sparse);

static inline bool kv_sparse_has(const struct kv_sparse *sparse, size_t layer, size_t head)
{
    return sparse->is && sparse->is[layer * sparse->kv_heads + head];
}

/* The first of the last rows that a query at position `own` sees. */
static inline size_t kv_recent_start(size_t own, size_t recent)
{
    return recent && own >= recent ? own + 1 - recent : 0;
}

/* Of heads [0, end) of a layer, those that are not sparse; and of heads that go together in groups, at most. */
size_t kv_sparse_others(const struct kv_sparse *sparse, size_t layer, size_t end);
size_t kv_sparse_widest(const struct kv_sparse *sparse, size_t group);

#endif
