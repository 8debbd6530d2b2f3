/* Storage of policy `shift`: a buffer per head in which the window moves forwards.
 *
 * One mapping per sequence, [layer][stored matrix][KV head][rows of the layer][head_dim]; layers with a
 * shorter sliding window keep fewer rows. Row i of a buffer holds position origin + i - before,
 * where `before` is the padding before position 0. The origin is a multiple of TILE_ROWS: tiles
 * begin at the same positions as in any other cache. */
#ifndef BMC_KV_WINDOW_H
#define BMC_KV_WINDOW_H

#include "kv/kv_policy.h"
#include "kv/kv_rows.h"

struct window_layout {
    size_t past;   /* rows that a query sees before its own: S - 1 */
    size_t before; /* padding before position 0, whole tiles */
    size_t rows;   /* rows of the buffer of one head's K or V */
    size_t at;     /* byte offset of the layer in the sequence's memory */
};

struct kv_windows {
    struct window_layout *layout; /* [layers] */
    size_t bytes;                 /* of all buffers of a sequence */
    struct kv_window {
        char *rows;     /* NULL: not allocated yet */
        size_t *origin; /* [layers] */
    } window[];         /* [n_seqs] */
};

static inline struct kv_windows *kv_windows_of(const struct kv *kv) { return kv->store; }

static inline struct kv_window *kv_window_of(const struct kv *kv, size_t seq)
{
    return &kv_windows_of(kv)->window[seq];
}

/* Bytes of the buffer of one head's K or V. */
static inline size_t kv_window_stride(const struct kv *kv, const struct window_layout *layout)
{
    return layout->rows * kv_row_bytes(kv);
}

/* The buffer of a head's K (v = 0), or V (v = kv_v_matrix(kv, 0)). */
char *kv_window_head(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head);

/* Implements kv_policy.row_at. */
char *kv_window_row(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);

/* Allocates the sequence's buffers, zeroed, if it has none. */
int kv_window_ensure(struct kv *kv, size_t seq, struct err *err) MUST_USE;
void kv_window_release(struct kv *kv, size_t seq);

/* Makes room for `rows` new rows behind a sequence's committed ones: if a buffer has too few rows
 * left, its window is copied to its front. */
void kv_window_make_room(struct kv *kv, size_t seq, size_t rows);

/* Truncates the sequence to position `end`. If its window then begins before the buffer's origin,
 * its rows are moved back by whole tiles, and the rows before them are zeroed. */
void kv_window_rewind(struct kv *kv, size_t seq, size_t end);

#endif
