/* Computes how much memory an offloading cache needs. */
#include "kv/offload/offload_heads.h"

#include <math.h>

/* Of a budget `all`, the share of the first of two caches that need at least floor[] bytes and at most most[]. */
static double share_of(double all, const double floor[2], const double most[2])
{
    const double floors = floor[0] + floor[1], both = most[0] + most[1];
    if (all <= floors)
        return all * floor[0] / floors;
    return all < both ? floor[0] + (all - floors) * (most[0] - floor[0]) / (both - floors)
                      : all * most[0] / both;
}

void offload_share(struct kv *kv, struct offload_options *other, const struct kv_shape *shape)
{
    const size_t all = kv->spec.offload.ram, rows = kv->setup.shape.max_rows;
    struct kv second = *kv;
    second.setup.shape = *shape;
    second.spec.shards.layers = kv->spec.shards.other_layers;
    second.spec.shards.kv_heads = kv->spec.shards.other_kv_heads;
    const struct kv *const caches[] = {kv, &second};
    double floor[2], most[2];
    for (size_t i = 0; i < 2; i++) {
        const struct kv largest = kv_of_largest_shard(caches[i]);
        const double n = (double)kv->setup.n_seqs;
        floor[i] = n * (double)offload_floor(caches[i], rows, KV_CHUNK_ROWS);
        most[i] = fmax(floor[i], n * (double)offload_bytes(&largest, rows));
    }
    kv->spec.offload.ram = size_max(1, (size_t)share_of((double)all, floor, most));
    other->ram = size_max(1, all - size_min(all, kv->spec.offload.ram));
    kv->spec.offload.ram_all = other->ram_all = all;
}

size_t offload_scale(const struct offload_options *o, size_t bytes)
{
    return !o->ram_all || bytes == SIZE_MAX
               ? bytes
               : (size_t)ceil((double)bytes * ((double)o->ram_all / (double)o->ram));
}

/* Bytes of a streaming head's K or V that are in memory in a sequence of `rows` rows. */
static size_t streaming_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    const size_t sink = offload_blocks_up(kv, streaming->sink),
                 dropped = offload_blocks_down(kv, kv_recent_start(rows, streaming->recent));
    return offload_blocks_up(kv, rows) - (dropped - size_min(sink, dropped));
}

size_t offload_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const size_t streaming = offload_of(kv)->streaming.n,
                 retrieval = shape->layers * shape->kv_heads - streaming;
    return size_plus(size_times(kv_matrices(kv) * retrieval, offload_blocks_up(kv, rows)),
                     size_times(kv_matrices(kv) * streaming, streaming_bytes(kv, rows)));
}

size_t offload_in_transit(const struct kv *kv, size_t step, bool copying)
{
    const size_t rows = offload_blocks_up(kv, step);
    if (copying)
        return kv_matrices(kv) * size_min(rows, OFFLOAD_STRIP_BYTES);
    return step > KV_CHUNK_ROWS ? size_times(2 * kv->setup.shape.kv_heads * kv_matrices(kv), rows) : 0;
}

/* The sum with all retrieval heads offloaded: two buffers, each of a group of heads; the tail of
 * every head, which has the rows of the last two short steps (kv_rows.h) and a block at either end;
 * the rows of a long step on their way to the file; and the streaming heads. */
size_t offload_floor(const struct kv *kv, size_t rows, size_t step)
{
    const size_t other = kv->other ? offload_floor(kv->other, rows, step) : 0;
    if (!kv->offload.ram)
        return 0;
    const struct kv largest = kv_of_largest_shard(kv);
    const struct kv_shape *shape = &largest.setup.shape;
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    const size_t steps = offload_blocks_up(kv, 2 * size_min(step, KV_CHUNK_ROWS));
    const struct offload_memory m = {
        .layers = shape->layers,
        .kv_heads = shape->kv_heads,
        .head_bytes = size_times(kv_matrices(kv), offload_blocks_up(kv, rows)),
        .tail_bytes = step ? kv_matrices(kv) * (steps + 2 * OFFLOAD_BLOCK) : 0,
        .other_bytes = step ? size_max(offload_in_transit(&largest, step, false),
                                       offload_in_transit(&largest, rows, true))
                            : 0,
        .streaming = streaming->n ? streaming : NULL,
        .streaming_bytes =
            size_times(kv_matrices(kv) * streaming->n,
                       size_plus(streaming_bytes(kv, rows), offload_blocks_up(kv, step))),
    };
    const size_t bytes =
        offload_plan_bytes(&m, size_min(size_max(kv->spec.offload.group, 1), shape->kv_heads), 0);
    return size_max(offload_scale(&kv->spec.offload, bytes), other);
}

/* Returns false once heads are offloaded, as some stay in the file until the cache is empty; also
 * if the larger shard of another rank may offload, or if there are streaming heads, which need
 * memory for a step's rows. */
bool offload_keeps_all(const struct kv *kv)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const struct kv_shards *shards = &kv->spec.shards;
    const bool largest = shards->layers <= shape->layers && shards->kv_heads <= shape->kv_heads;
    return largest && !kv->offload.heads_at_once && !kv->spec.offload.streaming &&
           (!kv->other || offload_keeps_all(kv->other));
}
