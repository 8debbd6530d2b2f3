/* Memory of heads on a device, which has no address space without memory: blocks. That of a resident head grows with the
 * sequence; that of an offloaded one begins at its first byte that is not on the host. A block that is too small or too large
 * by more than offload_slack() is replaced by another. */
#include "kv/offload/offload_heads.h"

size_t offload_held(const struct kv *kv, size_t rows)
{
    return kv->memory->exchange
               ? size_min(round_up(rows, OFFLOAD_STEP),
                          size_max(rows, round_up(kv->setup.shape.max_rows, TILE_ROWS)))
               : rows;
}

size_t offload_slack(const struct kv *kv, size_t row_bytes)
{
    return kv->memory->exchange ? offload_blocks_up(row_bytes, OFFLOAD_STEP) : 0;
}

/* Bytes [from, to) of what the block holds become all of it; bytes that it did not hold are undefined. */
static bool replace(struct kv *kv, struct offload_block *b, size_t from, size_t to)
{
    const struct offload_block old = *b;
    const size_t first = size_max(old.from, from), end = size_min(old.from + old.bytes, to);
    struct offload_block fresh = {{0}, from, to - from};
    if (fresh.bytes && addr_is_null(fresh.at = kv->memory->alloc(kv->spec.alloc, fresh.bytes))) {
        struct err err;
        (void)!err_no_memory(&err, "%zu bytes of KV entries on the device: lower ram=", fresh.bytes);
        offload_set_error(kv, &err);
        return false;
    }
    if (first < end)
        kv_copy(kv, addr_add(fresh.at, first - from), addr_add(old.at, first - old.from), end - first);
    if (old.bytes)
        kv->memory->free(kv->spec.alloc, old.at, old.bytes);
    *b = fresh;
    return true;
}

void offload_block_free(struct kv *kv, struct offload_block *b) { replace(kv, b, b->from, b->from); }

bool offload_block_new(struct kv *kv, struct offload_block *b, size_t bytes)
{
    offload_block_free(kv, b);
    return replace(kv, b, 0, bytes);
}

void offload_cover(struct kv *kv, size_t seq, size_t head, size_t from, size_t to)
{
    struct offload_block *b = offload_of(kv)->seq[seq].block;
    if (!b || from >= to)
        return;
    b += head;
    const size_t end = b->from + b->bytes;
    if (!b->bytes || from < b->from || to > end)
        replace(kv, b, from, b->bytes ? size_max(to, end) : to);
}

void offload_drop(struct kv *kv, size_t seq, size_t head, size_t from, size_t to)
{
    struct offload_block *b = offload_of(kv)->seq[seq].block;
    if (!b) {
        kv->memory->drop(addr_add(offload_head(kv, seq, head), from), to - from);
        return;
    }
    b += head;
    const size_t end = b->from + b->bytes, bytes = kv->head[head].bytes,
                 kept = offload_blocks_up(bytes, offload_held(kv, div_up(from, bytes)));
    if (from <= b->from && to >= end)
        offload_block_free(kv, b);
    else if (from <= b->from && to > b->from + offload_slack(kv, bytes))
        replace(kv, b, to, end);
    else if (from > b->from && to >= end && kept < end)
        replace(kv, b, b->from, kept);
}

void offload_grow(struct kv *kv, size_t seq, size_t layer, size_t rows, bool resident_only)
{
    const struct offload *h = offload_of(kv);
    const size_t held = offload_held(kv, rows);
    for (size_t i = kv->first_head[layer]; i < kv->first_head[layer + 1] && h->seq[seq].block; i++) {
        const struct kv_head *head = &kv->head[i];
        const bool resident = i - kv->matrix_head[head->matrix] < h->resident[layer];
        if (resident || !resident_only)
            offload_cover(kv, seq, i, resident ? 0 : h->seq[seq].flushed[head->matrix],
                          offload_blocks_up(head->bytes, held));
    }
}
