/* Buffers in which windows slide: the storage of policy `shift`.
 *
 * One mapping per sequence: [layer][K or V][KV head][rows of the layer][d]. A layer whose own window is shorter keeps no more
 * rows than that. A row's place is its position, with the padding before position 0, counted from the buffer's origin: a
 * multiple of TILE_ROWS, so that tiles of rows begin at the positions where they do in any other cache. */
#ifndef BMC_KV_WINDOW_H
#define BMC_KV_WINDOW_H

#include "kv/kv_policy.h"
#include "kv/kv_rows.h"

/* What is kept of a layer. */
struct kv_plan {
    size_t past;   /* rows that a query sees before itself: S - 1 */
    size_t before; /* padding before position 0, whole tiles */
    size_t rows;   /* of a head's buffer */
    size_t at;     /* bytes from the sequence's memory to the layer's */
};

struct kv_windows {
    struct kv_plan *plan; /* [layers] */
    size_t bytes;         /* of a sequence */
    struct kv_window {
        char *rows;     /* NULL: nothing is made yet */
        size_t *origin; /* [layers] */
    } window[];         /* by sequence */
};

static inline struct kv_windows *kv_windows_of(const struct kv *kv) { return kv->store; }

static inline struct kv_window *kv_window_of(const struct kv *kv, size_t seq)
{
    return &kv_windows_of(kv)->window[seq];
}

/* Bytes of a head's buffer. */
static inline size_t kv_window_stride(const struct kv *kv, const struct kv_plan *plan)
{
    return plan->rows * kv_row_bytes(kv);
}

/* The buffer of a head of K (v = 0) or V (1) of a layer. */
char *kv_window_head(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head);

/* A committed row, or one that room has been made for; NULL: the layer does not keep it. */
char *kv_window_row(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);

/* The sequence has buffers, of zeros when they are new. */
int kv_window_make(struct kv *kv, size_t seq, struct err *err) MUST_USE;
void kv_window_release(struct kv *kv, size_t seq);

/* Room for `rows` rows behind the committed ones: where a buffer ends, the window is copied to its front. */
void kv_window_slide(struct kv *kv, size_t seq, size_t rows);

/* The sequence now ends at position `end`. After a cut its window may begin before the buffer does: its rows then move back
 * by whole tiles, and zeros fill the padding before position 0. */
void kv_window_recede(struct kv *kv, size_t seq, size_t end);

#endif
