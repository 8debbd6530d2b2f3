/* Head-wise KV offload (policy `headwise`, HeadInfer paper): options, and functions for users of a
 * cache that keeps only some heads in memory. Users of other caches need none of this. */
#pragma once

#include "base/base.h"

struct kv;
struct kv_streaming;

enum { OFFLOAD_DIR_SIZE = 512 };

struct offload_options {
    size_t ram;   /* memory budget of the KV cache in bytes */
    size_t group; /* KV heads read from the file at a time; 0: automatic */
    /* folder for the file of offloaded entries, unless the cache is a device's */
    char dir[OFFLOAD_DIR_SIZE];
    /* heads that see attention sinks and a recent window only; NULL: none. Read by kv_open() */
    const struct kv_streaming *streaming;
};

/* Limits of an open cache; all zero if it does not offload. */
struct offload_limits {
    size_t ram;           /* memory budget in bytes */
    size_t heads_at_once; /* maximum KV heads per kv_prefetch(); 0: all are in memory */
    bool apart;           /* kv_view() is for one head at a time: each has memory of its own */
};

struct offload_limits kv_offload(const struct kv *kv);

/* Starts to read KV heads [head, head + heads) of a layer from the file, where `head` is a multiple
 * of heads_at_once. kv_view() accepts the last two ranges prefetched. No-op without offload. */
void kv_prefetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);

/* Announces that a new sequence may grow to `rows` tokens, in forward passes of at most `step`: if
 * the memory budget is too small, the error message then says how much the whole sequence needs. */
void offload_expect(struct kv *kv, size_t seq, size_t rows, size_t step);

/* Bytes of memory that are always enough for a sequence of `rows` entries, appended in forward
 * passes of at most `step` tokens; 0 without offload. */
size_t offload_floor(const struct kv *kv, size_t rows, size_t step);

/* Bytes of memory that an empty cache needs to prefill `rows` tokens, `chunk` at a time, and to
 * copy them for `width` beams, if that exceeds the budget; otherwise 0. */
size_t offload_prompt_excess(const struct kv *kv, size_t rows, size_t chunk, size_t width);

/* Lets the cache take `ram` bytes of memory from the next pass on, at most its budget: more heads are offloaded, or later
 * ones are not. If that is too little for what must be in memory, it takes that. */
void offload_limit(struct kv *kv, size_t ram);

/* True if all heads are sure to stay in memory as long as the sequences fit the budget in total. */
bool offload_keeps_all(const struct kv *kv);
