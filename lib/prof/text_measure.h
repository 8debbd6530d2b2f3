/* What running a text shows of a model: its retrieval heads, which attend to what the text repeats, and the ranges of keys and values, from which shared scales of a KV cache follow (kv/kv_scales.h). */
#pragma once

#include "kv/kv_scales.h"
#include "kv/kv_sensitivity.h"
#include "prof/report.h"

struct retrieval_options {
    size_t sink, recent; /* sink and recent tokens that every head attends to */
    double sparsity;     /* proportion of heads to make streaming heads */
};

enum { REACH_QUERIES = 64 }; /* the text's last tokens whose attention is measured: at most 64 */

struct retrieval_head {
    size_t layer, head;
    /* mean attention weight on what the text repeats, of the query head with the highest */
    double score;
    bool sparse;
};

/* Runs the n tokens `id` of a text, and sets head[layers * KV heads], in layer order: scores, and
 * which heads become streaming heads. The text must be longer than sinks plus window. *repeats: tokens that repeat what
 * sinks and window don't show (prof/retrieval_text.h). With fewer than REPEATS_LEAST the text cannot tell retrieval heads,
 * and a score is the weight on all that is beyond sinks and window instead, of its last tokens. */
int retrieval_heads_measure(struct retrieval_head *head, size_t *repeats,
                            const struct retrieval_options *options, const struct run *run,
                            const struct model *model, const uint32_t *id, size_t n,
                            struct err *err) MUST_USE;

/* Writes the list of retrieval heads in the format of kv/offload/kv_streaming.h. */
int retrieval_heads_list(const struct retrieval_head *head, const struct retrieval_options *options,
                         const struct model *model, struct buf *text, struct err *err) MUST_USE;

/* Runs the n tokens `id` of a text with a cache of f32 entries, and measures the smallest and the largest value of K
 * (after RoPE) and of V, by layer and KV head. On error there is nothing to release. */
int cache_ranges_measure(struct kv_scales *scales, const struct run *run, const struct model *model,
                         const uint32_t *id, size_t n, struct err *err) MUST_USE;

/* Measures what types of KV entries cost a model: runs the n tokens `id` once for each layer's keys and values, and for
 * all keys and all values of each type, each time beside a cache of f32. Products are in the run's precision: f32 keeps the
 * rounding of activations, which small changes turn over, out of the figures. The caller releases *s, also after an error. */
int cache_costs_measure(struct kv_sensitivity *s, const struct report *report,
                        const struct model *model, const uint32_t *id, size_t n,
                        struct err *err) MUST_USE;
