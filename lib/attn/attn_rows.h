/* Where the rows of a view lie, for what goes over them in order of position. */
#ifndef BMC_ATTN_ROWS_H
#define BMC_ATTN_ROWS_H

#include "kernel/kernel.h"
#include "kv/kv.h"

/* Pointers to the tiles of positions [from, to); from is a multiple of a tile, and no tile lies in two
 * spans. Of rows that are dropped nothing is seen: the first tile that is there stands for theirs. */
size_t view_tiles(const struct kv_view *view, size_t from, size_t to, const char **k, const char **v);

/* Bytes from a span's k and v to row `at` of the view, or to its first one. */
size_t view_row(const struct kv_view *view, size_t at, const struct kv_span **span);

/* Two views show the same memory where row `at` is. */
bool view_same_row(const struct kv_view *a, const struct kv_view *b, size_t at);

#endif
