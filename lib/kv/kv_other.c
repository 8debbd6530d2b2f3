/* Layers whose KV heads have other sizes than the rest have a second cache, with the same policy, sequences and
 * rows: which of both has a layer, and their statistics. The front end applies every change to both. */
#include "kv/kv_policy.h"

struct kv *kv_of_layer(struct kv *kv, size_t *layer)
{
    const size_t own = kv->setup.shape.layers;
    if (!kv->other || *layer < own)
        return kv;
    *layer -= own;
    return kv->other;
}

bool kv_overflowed(const struct kv *kv)
{
    return kv->overflowed || (kv->other && kv->other->overflowed);
}

struct kv_stats kv_stats(const struct kv *kv)
{
    struct kv_stats sum = kv->stats;
    if (!kv->other)
        return sum;
    const struct kv_stats *other = &kv->other->stats;
    sum.allocations += other->allocations;
    sum.copied_bytes += other->copied_bytes;
    sum.resident_bytes += other->resident_bytes;
    sum.peak_bytes += other->peak_bytes;
    sum.alloc_ms += other->alloc_ms;
    sum.copy_ms += other->copy_ms;
    return sum;
}

void kv_stats_restore(struct kv *kv, const struct kv_stats *before)
{
    const size_t resident = kv->stats.resident_bytes;
    const bool stays = kv->state || kv->other;
    kv->stats = *before;
    if (stays) /* the passes may have allocated states that stay; other sizes are counted there */
        kv->stats.resident_bytes = resident;
    if (!kv->other)
        return;
    struct kv_stats *other = &kv->other->stats;
    *other =
        (struct kv_stats){.resident_bytes = other->resident_bytes, .peak_bytes = other->peak_bytes};
    kv->stats.peak_bytes -= size_min(kv->stats.peak_bytes, other->peak_bytes);
}
