/* Streaming heads: most heads attend to the first tokens (attention sinks) and a recent window
 * only; the others are retrieval heads, listed in a file (HeadInfer paper, appendix D):
 *
 *   sink 4        first tokens that a streaming head sees
 *   recent 256    last tokens that it sees, the query's own included
 *   0 3           KV head 3 of layer 0 is a retrieval head; heads not listed are streaming heads
 *
 * A cache may drop the entries that a streaming head does not see, and attention masks them. */
#pragma once

#include "base/err.h"

/* defaults */
#define STREAMING_SINK   4
#define STREAMING_RECENT 256

struct kv_streaming {
    size_t layers, kv_heads;
    size_t sink, recent;
    size_t n; /* number of streaming heads */
    bool *is; /* [layers][kv_heads]: is a streaming head; NULL: none is */
};

/* Reads a list of retrieval heads, from a text or a file, for a model of this shape. On error there
 * is nothing to release. */
int kv_streaming_parse(struct kv_streaming *streaming, const char *text, size_t size, const char *name,
                       size_t layers, size_t kv_heads, struct err *err) MUST_USE;
int kv_streaming_open(struct kv_streaming *streaming, const char *path, size_t layers, size_t kv_heads,
                      struct err *err) MUST_USE;
int kv_streaming_copy(struct kv_streaming *to, const struct kv_streaming *from,
                      struct err *err) MUST_USE;
void kv_streaming_release(struct kv_streaming *streaming);

static inline bool kv_is_streaming(const struct kv_streaming *streaming, size_t layer, size_t head)
{
    return streaming->is && streaming->is[layer * streaming->kv_heads + head];
}

/* Number of retrieval heads among heads [0, end) of a layer; maximum number of them in any group of
 * `group` consecutive heads of a layer. */
size_t kv_retrieval_count(const struct kv_streaming *streaming, size_t layer, size_t end);
size_t kv_retrieval_widest(const struct kv_streaming *streaming, size_t group);
