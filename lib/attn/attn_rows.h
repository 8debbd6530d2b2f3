/* Finds the KV entries of attended positions in memory, tile by tile, in a view of the KV cache
 * (struct kv_view, kv.h). */
#pragma once

#include "kernel/kernel.h"
#include "kv/kv.h"

/* Addresses of the K and V tiles of a run of positions, for the members of struct attend with the
 * same names. */
enum { RUN_TILES = 16 };
struct tiles {
    const char *k[RUN_TILES], *v[RUN_TILES];
    const ptrdiff_t *k_rows[RUN_TILES], *v_rows[RUN_TILES]; /* [ATTEND_TILE]; NULL: contiguous */
};

/* The memory of a span, whose cache is in that of the CPU. */
static inline const char *span_k(const struct kv_span *span)
{
    return (const char *)span->k.device_address;
}
static inline const char *span_v(const struct kv_span *span)
{
    return (const char *)span->v.device_address;
}

/* Fills in `tiles` for positions [from, to) and returns their number. `from` is a multiple of
 * ATTEND_TILE, and no tile crosses spans. Positions that the cache has dropped, which no query
 * attends to, get the address of the next tile that it has. */
size_t view_tiles(const struct kv_view *view, size_t from, size_t to, struct tiles *tiles);

/* Memory for k_rows and v_rows of tiles whose entries are scattered over a view. */
struct row_tables {
    ptrdiff_t k[RUN_TILES * ATTEND_TILE], v[RUN_TILES * ATTEND_TILE];
};

/* Fills in `tiles` for n entries at any positions entry[0 .. n) of the view, and their row tables;
 * returns the number of tiles. */
size_t view_scattered(const struct kv_view *view, const size_t *entry, size_t n, struct tiles *tiles,
                      struct row_tables *tables);
