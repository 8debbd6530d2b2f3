/* Computes how much memory sequences need under the cache's policy; allocates nothing. */
#pragma once

#include "kv/kv.h"

/* Memory that sequences need, in bytes over all layers and heads of the largest shard; SIZE_MAX:
 * more than can be counted. */
struct kv_footprint {
    size_t total;     /* of all rows, offloaded ones included */
    size_t transient; /* additional, of one sequence at a time, while its last growth copies */
    /* part of total that must be in memory at a time: offload_floor(), set by the caller */
    size_t floor;
    size_t ahead; /* additional, of growth in advance: kv_prepare.h */
    size_t state; /* additional, of recurrent state, which no policy offloads */
};

/* Returns the footprint of `width` sequences (beams) that have the same prompt of `prompt` rows and
 * grow to `rows` rows each. */
struct kv_footprint kv_footprint(const struct kv *kv, size_t prompt, size_t rows, size_t width);

/* Footprint of two or n groups of sequences of which one grows at a time: transients do
 * not add up, all else does. */
struct kv_footprint kv_footprint_add(struct kv_footprint a, struct kv_footprint b);
struct kv_footprint kv_footprint_times(struct kv_footprint footprint, size_t n);

/* Bytes in memory once all rows of the footprint are allocated; and the peak until then. */
size_t kv_footprint_resident(const struct kv *kv, struct kv_footprint footprint);
size_t kv_footprint_peak(const struct kv *kv, struct kv_footprint footprint);

/* True when the cache's own memory budget, if it has one, allows the footprint. */
bool kv_footprint_possible(const struct kv *kv, struct kv_footprint footprint);

/* How many such footprints fit into `bytes` and the cache's own budget; SIZE_MAX: any number. */
size_t kv_footprint_fits(const struct kv *kv, struct kv_footprint footprint, size_t bytes);

/* Bytes that are copied, and meanwhile held twice, when another sequence is forked from a sequence
 * of `rows` rows to share its first `common` rows; 0 under policies that share no memory. */
size_t kv_footprint_of_fork(const struct kv *kv, size_t rows, size_t common);
