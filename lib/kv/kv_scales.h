/* Shared scales of a quantised KV cache (HTP note): K and V of each layer and KV head are quantised with one scale, and
 * for 4 bits one minimum, which are fixed for the whole run; larger magnitudes saturate. Entries are stored as with
 * scales of their own, so that attention, snapshots and offloading do not differ. A file has the ranges of values
 * from which the scales follow:
 *
 *   model_id HASH                               the model that they were measured on
 *   LAYER HEAD K_LOW K_HIGH V_LOW V_HIGH        for each layer of the cache and KV head, once
 *
 * Where V is a part of K (MLA), lines have no V. Layers have the numbers of the cache. Older programs counted those with
 * other sizes of KV heads than the first layer behind all others: where sizes differ, the file has a line
 *
 *   layers in_order
 *
 * Keys of some models are multiplied by scales that follow from the weights (model/key_scales.h), which older programs did
 * not do: there the file has a line
 *
 *   keys scaled */
#pragma once

#include "base/mem.h"
#include "kv/kv.h"

/* The largest magnitude that a file may have, that of f16: 4-bit entries store scale and minimum as f16. */
#define KV_SCALES_LARGEST 65504.

/* The smallest and the largest value. */
struct kv_extent {
    float low, high;
};

struct kv_scales {
    struct hash id;          /* of the ranges */
    size_t n;                /* kv_scales_count() */
    struct kv_extent *range; /* by layer, K before V, by head */
};

/* Number of ranges of a cache of this shape; 0 if it is beyond the address space. */
size_t kv_scales_count(const struct kv_shape *shape);

/* The number of one of them; `v` is false where V is a part of K. */
size_t kv_scales_index(const struct kv_shape *shape, size_t layer, bool v, size_t head);

struct conf;

/* Fails unless the file was made of the model `model_id`: its key model_id says so. `what` and `remedy` are parts of the
 * sentence: what the file has of another model, and what makes one of this. Files of ranges and of costs begin so. */
int kv_scales_check_model(const struct conf *conf, const struct hash *model_id, const char *what,
                          const char *remedy, struct err *err) MUST_USE;

/* Reads the ranges for a cache of this shape of the model `model_id`, whose keys are scaled or not, from a text or a file.
 * On error there is nothing to release. */
int kv_scales_parse(struct kv_scales *scales, const char *text, size_t size, const char *name,
                    const struct kv_shape *shape, const struct hash *model_id, bool scaled_keys,
                    struct err *err) MUST_USE;
int kv_scales_open(struct kv_scales *scales, const char *path, const struct kv_shape *shape,
                   const struct hash *model_id, bool scaled_keys, struct err *err) MUST_USE;
void kv_scales_release(struct kv_scales *scales);

/* Appends the text of a file. */
int kv_scales_format(const struct kv_scales *scales, const struct kv_shape *shape,
                     const struct hash *model_id, bool scaled_keys, struct buf *text,
                     struct err *err) MUST_USE;
