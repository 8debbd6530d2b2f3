/* Finds the KV entries of a view in memory, tile by tile. */
#ifndef BMC_ATTN_ROWS_H
#define BMC_ATTN_ROWS_H

#include "kernel/kernel.h"
#include "kv/kv.h"

/* The tiles of a run of positions, as arguments of struct attend. */
enum { RUN_TILES = 16 };
struct tiles {
    const char *k[RUN_TILES], *v[RUN_TILES];
    const ptrdiff_t *k_rows[RUN_TILES], *v_rows[RUN_TILES]; /* [ATTEND_TILE]; NULL: contiguous */
};

/* Fills in the tiles of positions [from, to) and returns how many; `from` is a multiple of
 * ATTEND_TILE, and no tile crosses spans. Positions that the cache has dropped, which no query
 * attends to, are represented by the first tile of the view. */
size_t view_tiles(const struct kv_view *view, size_t from, size_t to, struct tiles *tiles);

/* Memory for the row tables of tiles whose entries are scattered over a view. */
struct row_tables {
    ptrdiff_t k[RUN_TILES * ATTEND_TILE], v[RUN_TILES * ATTEND_TILE];
};

/* Fills in tiles of the n entries at positions entry[0 .. n) of the view; returns how many. */
size_t view_scattered(const struct kv_view *view, const size_t *entry, size_t n, struct tiles *tiles,
                      struct row_tables *tables);

#endif
