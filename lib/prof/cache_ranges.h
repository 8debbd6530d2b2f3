/* Measures the ranges of a model's keys and values, from which shared scales of a KV cache follow (kv/kv_scales.h). */
#ifndef BMC_CACHE_RANGES_H
#define BMC_CACHE_RANGES_H

#include "kv/kv_scales.h"
#include "prof/run.h"

/* Runs the n tokens `id` of a text with a cache of f32 entries, and measures the smallest and the largest value of K
 * (after RoPE) and of V, by layer and KV head. On error there is nothing to release. */
int cache_ranges_measure(struct kv_scales *scales, const struct run *run, const struct model *model,
                         const uint32_t *id, size_t n, struct err *err) MUST_USE;

#endif
