/* Where the rows of a view lie, for what goes over them in order of position. */
#ifndef BMC_ATTN_ROWS_H
#define BMC_ATTN_ROWS_H

#include "kernel/kernel.h"
#include "kv/kv.h"

/* The tiles of a run of positions, as struct attend wants them. */
enum { RUN_TILES = 16 };
struct tiles {
    const char *k[RUN_TILES], *v[RUN_TILES];
    const ptrdiff_t *k_rows[RUN_TILES], *v_rows[RUN_TILES]; /* [ATTEND_TILE] each; NULL: strided */
};

/* The tiles of positions [from, to); from is a multiple of a tile, and no tile lies in two spans. Returns how many.
 * Nothing is seen of rows that are dropped: the first tile that is there stands for theirs. */
size_t view_tiles(const struct kv_view *view, size_t from, size_t to, struct tiles *tiles);

/* Row tables of tiles whose rows lie anywhere in a view: of K and of V. */
struct row_tables {
    ptrdiff_t k[RUN_TILES * ATTEND_TILE], v[RUN_TILES * ATTEND_TILE];
};

/* The tiles of n rows that lie at positions lies[0 .. n) of the view. */
size_t view_scattered(const struct kv_view *view, const size_t *lies, size_t n, struct tiles *tiles,
                      struct row_tables *tables);

/* Bytes from a span's k and v to row `at` of the view, or to its first one. */
ptrdiff_t view_row(const struct kv_view *view, size_t at, const struct kv_span **span);

/* Two views show the same memory where row `at` is. */
bool view_same_row(const struct kv_view *a, const struct kv_view *b, size_t at);

#endif
