/* shift: a rolling KV cache with a sliding window of S rows, for sequences longer than the context
 * (HTP note). The last S - 1 rows of every head are contiguous in a buffer with some slack; in a
 * shorter sequence zeros precede them. Writing a new row behind them moves the window without a
 * copy; when the buffer is full, the window is copied to its front. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/policy/kv_window.h"

/* Sizes the buffers of a layer in which a query sees `seen` rows. A window that was copied to the
 * front may begin anywhere in the buffer's first tile, and one more row must fit behind it. */
static struct window_layout layout_of(size_t seen, double slack)
{
    const size_t past = seen - 1;
    return (struct window_layout){
        .past = past,
        .before = round_up(past, TILE_ROWS),
        .rows = round_up(past + size_max((size_t)(slack * (double)past), TILE_ROWS), TILE_ROWS),
    };
}

/* Maximum new rows per forward pass: as many as fit behind a window that begins at any tile row. */
static size_t step_rows(const struct window_layout *p) { return p->rows - p->past - (TILE_ROWS - 1); }

static struct window_layout layer_layout(const struct kv *kv, const size_t *windows, size_t layer)
{
    const size_t S = kv->setup.window, own = windows && windows[layer] ? windows[layer] : S;
    return layout_of(size_min(own, S), kv->spec.slack);
}

/* Limits the cache's forward passes and truncations to those that a layer of this layout allows. */
static void restrict_to(struct kv *kv, const struct window_layout *p)
{
    kv->untrimmed_limit = size_min(kv->untrimmed_limit, p->past);
    kv->setup.step_rows = size_min(kv->setup.step_rows, step_rows(p));
}

static bool layout_layers(struct kv *kv, struct kv_windows *store)
{
    struct kv_setup *setup = &kv->setup;
    const struct kv_shards *shards = &kv->spec.shards;
    setup->step_rows = SIZE_MAX;
    for (size_t l = 0; l < shards->n_windows; l++) {
        const struct window_layout layout = layer_layout(kv, shards->windows, l);
        restrict_to(kv, &layout);
    }
    for (size_t l = 0; l < setup->shape.layers; l++) {
        struct window_layout *p = &store->layout[l];
        size_t bytes;
        *p = layer_layout(kv, kv->spec.windows, l);
        p->at = store->bytes;
        if (!size_mul(kv_matrices(kv) * setup->shape.kv_heads * kv_row_bytes(kv), p->rows, &bytes) ||
            !size_add(store->bytes, bytes, &store->bytes))
            return false;
        restrict_to(kv, p);
        setup->view_rows = size_max(setup->view_rows, p->rows + TILE_ROWS);
    }
    return true;
}

static int open_windows(struct kv *kv, struct err *err)
{
    const size_t n = kv->setup.n_seqs, layers = kv->setup.shape.layers;
    struct kv_windows *store = kv->store = mem_zalloc(1, sizeof *store + n * sizeof store->window[0]);
    size_t *origins = mem_zalloc(n * layers, sizeof *origins);
    kv->setup.window = kv->setup.r;
    if (!store || !origins || !(store->layout = mem_alloc(layers, sizeof *store->layout))) {
        free(origins);
        return err_no_memory(err, "the cache's tables");
    }
    for (size_t s = 0; s < n; s++)
        store->window[s].origin = origins + s * layers;
    return layout_layers(kv, store)
               ? 0
               : err_set(err, "a rolling cache of %zu rows is larger than the address space",
                         kv->setup.window);
}

static void close_windows(struct kv *kv)
{
    struct kv_windows *store = kv_windows_of(kv);
    if (!store)
        return;
    free(store->window[0].origin);
    free(store->layout);
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    if (kv_window_ensure(kv, seq, err) < 0)
        return -1;
    kv_window_make_room(kv, seq, rows);
    return 0;
}

/* Implements kv_policy.view. The view begins at the tile of the oldest row that the first pending
 * row sees, or at position 0 with padding before it. */
static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct window_layout *p = &kv_windows_of(kv)->layout[layer];
    const size_t sees = kv_position(kv, seq) + p->before - p->past, bytes = kv_row_bytes(kv);
    const size_t first = size_max(sees / TILE_ROWS * TILE_ROWS, p->before) - p->before;
    const size_t rows = kv->seq[seq].first + valid - first;
    const size_t origin = kv_window_of(kv, seq)->origin[layer];
    assert(sees / TILE_ROWS * TILE_ROWS >= origin); /* rows and padding are in the buffer */
    const size_t place = (first + p->before - origin) * bytes;
    out->offset = 0;
    out->padded = kv->attend == KV_ATTEND_WINDOW && sees < p->before
                      ? p->before - sees / TILE_ROWS * TILE_ROWS
                      : 0;
    out->n_spans = 1;
    out->span = out->inline_span;
    out->inline_span[0] = (struct kv_span){
        .k = kv_window_head(kv, seq, layer, 0, head) + place,
        .v = kv_window_head(kv, seq, layer, kv_v_matrix(kv, 0), head) + place,
        .head_stride = kv_window_stride(kv, p),
        .row_stride = bytes,
        .first = first,
        .rows = rows,
        .valid = rows,
    };
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        kv_window_release(kv, seq);
    else
        kv_window_rewind(kv, seq, kv->seq[seq].first + rows + n_extra);
}

/* Implements kv_policy.bytes: a sequence's buffers are allocated at once, whatever its length. */
static size_t window_bytes(const struct kv *kv, size_t rows)
{
    return rows ? kv_windows_of(kv)->bytes : 0;
}

/* Copies one layer's K and V from sequence `from` to the same buffer indices of sequence `to`: of
 * the first `rows` rows, those still in the buffer. The buffer of `to` has zeros before them. */
static void copy_layer(struct kv *kv, size_t to, size_t from, size_t layer, size_t rows)
{
    const struct window_layout *p = &kv_windows_of(kv)->layout[layer];
    const size_t origin = kv_window_of(kv, from)->origin[layer], bytes = kv_row_bytes(kv);
    const size_t first = kv->seq[from].first + p->before, end = first + rows;
    const size_t begin = size_max(first, origin), heads = kv->setup.shape.kv_heads;
    for (size_t i = 0; i < kv_matrices(kv) * heads && end > begin; i++)
        kv_copy(kv, kv_window_head(kv, to, layer, i / heads, i % heads) + (begin - origin) * bytes,
                kv_window_head(kv, from, layer, i / heads, i % heads) + (begin - origin) * bytes,
                (end - begin) * bytes);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (kv_window_ensure(kv, to, err) < 0)
        return -1;
    const double start = clock_ms();
    memcpy(kv_window_of(kv, to)->origin, kv_window_of(kv, from)->origin,
           kv->setup.shape.layers * sizeof(size_t));
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        copy_layer(kv, to, from, l, rows);
    kv->stats.copy_ms += clock_ms() - start;
    kv_window_rewind(kv, to, kv->seq[from].first + rows);
    kv->stats.copied_rows += rows;
    return 0;
}

const struct kv_policy kv_policy_shift = {
    .name = "shift",
    .growth = &kv_grow_window,
    .attend = KV_ATTEND_WINDOW,
    .rolling = true,
    .open = open_windows,
    .close = close_windows,
    .ensure = ensure,
    .row_at = kv_window_row,
    .append = kv_rows_append,
    .view = view,
    .accept = accept,
    .fork = fork_rows,
    .bytes = window_bytes,
};
