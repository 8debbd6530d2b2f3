/* shift: a rolling KV cache with a sliding window of S rows, for sequences longer than the context
 * (HTP note). The last S - 1 rows of every head are contiguous in a buffer with some slack; in a
 * shorter sequence zeros precede them. Writing a new row behind them moves the window without a
 * copy; when the buffer is full, the window is copied to its front.
 *
 * A sequence has one block of memory, [layer][heads of K, then V][rows of the layer][head_dim]; layers with a
 * shorter sliding window keep fewer rows. Row i of a buffer holds position origin + i - before,
 * where `before` is the padding before position 0. The origin is a multiple of TILE_ROWS: tiles
 * begin at the same positions as in any other cache.
 *
 * With attention sinks (StreamingLLM; Xiao et al., 2023) the window has S rows less the sinks, which are copied to
 * a buffer of their own behind the others when the window leaves them. Positions stay those of the sequence. */
#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

struct window_layout {
    size_t past;   /* rows that a query sees before its own: S - 1 */
    size_t before; /* padding before position 0, whole tiles */
    size_t rows;   /* rows of the buffer of one head's K or V */
    size_t at;     /* byte offset of the layer in the sequence's memory */
    size_t sinks;  /* rows of a head's K or V in the buffer of sinks, whole tiles; 0: none */
    size_t sinks_at;
};

struct kv_windows {
    struct window_layout *layout; /* [layers] */
    size_t bytes;                 /* of all buffers of a sequence */
    struct kv_window {
        struct device_addr rows; /* none: not allocated yet */
        size_t *origin;          /* [layers] */
    } window[];                  /* [n_seqs] */
};

static struct kv_windows *windows_of(const struct kv *kv) { return kv->store; }

static struct kv_window *window_of(const struct kv *kv, size_t seq)
{
    return &windows_of(kv)->window[seq];
}

/* ---- layout ---- */

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
    const size_t most = kv->setup.window, own = windows && windows[layer] ? windows[layer] : SIZE_MAX;
    struct window_layout p = layout_of(size_min(own, most), kv->spec.slack);
    p.sinks = own > most ? round_up(kv->setup.sinks, TILE_ROWS) : 0;
    return p;
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
        const size_t row = kv_sizes_bytes(kv_layer_sizes(kv, l));
        size_t bytes;
        *p = layer_layout(kv, kv->spec.windows, l);
        p->at = store->bytes;
        if (!size_mul(row, p->rows + p->sinks, &bytes) || !size_add(store->bytes, bytes, &store->bytes))
            return false;
        p->sinks_at = p->at + row * p->rows;
        restrict_to(kv, p);
        setup->view_rows = size_max(setup->view_rows, p->rows + TILE_ROWS + p->sinks);
    }
    return true;
}

static int open_windows(struct kv *kv, struct err *err)
{
    const size_t n = kv->setup.n_seqs, layers = kv->setup.shape.layers;
    struct kv_windows *store = kv->store = mem_zalloc(1, sizeof *store + n * sizeof store->window[0]);
    size_t *origins = mem_zalloc(n * layers, sizeof *origins);
    kv->setup.sinks = kv->spec.sinks;
    kv->setup.window = kv->setup.r - size_min(kv->setup.sinks, kv->setup.r);
    if (kv->setup.window < size_max(kv->setup.sinks, 2)) {
        free(origins);
        return err_set(err, "sinks=%zu: a window of %zu rows takes at most %zu attention sinks",
                       kv->setup.sinks, kv->setup.r, kv->setup.r > 2 ? kv->setup.r / 2 : 0);
    }
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
    struct kv_windows *store = windows_of(kv);
    if (!store)
        return;
    free(store->window[0].origin);
    free(store->layout);
}

/* ---- rows ---- */

/* Bytes of a row in the heads of the same layer before a head. */
static size_t bytes_before(const struct kv *kv, size_t head)
{
    return kv->head[head].before - kv->head[kv->first_head[kv->head[head].layer]].before;
}

/* The buffer of a head. */
static struct device_addr buffer_of(const struct kv *kv, size_t seq, size_t head)
{
    const struct window_layout *p = &windows_of(kv)->layout[kv->head[head].layer];
    return addr_add(window_of(kv, seq)->rows, p->at + bytes_before(kv, head) * p->rows);
}

/* The buffer of a head's sinks, and whether these are in the buffer of its rows still. */
static struct device_addr sinks_of(const struct kv *kv, size_t seq, size_t head)
{
    const struct window_layout *p = &windows_of(kv)->layout[kv->head[head].layer];
    return addr_add(window_of(kv, seq)->rows, p->sinks_at + bytes_before(kv, head) * p->sinks);
}

static bool has_start(const struct kv *kv, size_t seq, size_t layer)
{
    return window_of(kv, seq)->origin[layer] <= windows_of(kv)->layout[layer].before;
}

static struct device_addr row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    const struct kv_head *h = &kv->head[head];
    const size_t at = kv->seq[seq].first + row + windows_of(kv)->layout[h->layer].before,
                 origin = window_of(kv, seq)->origin[h->layer];
    return at < origin ? (struct device_addr){0}
                       : addr_add(buffer_of(kv, seq, head), (at - origin) * h->bytes);
}

/* Allocates the sequence's buffers, zeroed, if it has none. */
static int allocate(struct kv *kv, size_t seq, struct err *err)
{
    const double start = clock_ms();
    const size_t bytes = windows_of(kv)->bytes;
    struct kv_window *w = window_of(kv, seq);
    if (!addr_is_null(w->rows))
        return 0;
    w->rows = kv->memory->alloc(kv->spec.alloc, bytes);
    if (addr_is_null(w->rows))
        return err_no_memory(err,
                             "a rolling KV cache of %zu rows with its slack, %zu "
                             "bytes; use a smaller -c or -np",
                             kv->setup.window, bytes);
    kv_zero(kv, w->rows, bytes);
    kv_count_memory(kv, bytes, 0);
    kv->stats.allocations++;
    kv->stats.alloc_ms += clock_ms() - start;
    kv->seq[seq].cap = windows_of(kv)->layout[0].rows;
    return 0;
}

static void release_seq(struct kv *kv, size_t seq)
{
    struct kv_window *w = window_of(kv, seq);
    if (addr_is_null(w->rows))
        return;
    kv_count_memory(kv, 0, windows_of(kv)->bytes);
    kv->memory->free(kv->spec.alloc, w->rows, windows_of(kv)->bytes);
    w->rows = (struct device_addr){0};
    memset(w->origin, 0, kv->setup.shape.layers * sizeof *w->origin);
    kv->seq[seq].cap = 0;
}

/* ---- moving windows ---- */

/* Moves rows within a layer's buffers, from row `from` to row `to` on, and zeroes all rows before them; returns the
 * rows moved per head. */
static size_t move_rows(struct kv *kv, size_t seq, size_t layer, size_t from, size_t to, size_t rows)
{
    struct kv_copies moves, zeros;
    kv_copies_begin(&moves, kv);
    kv_copies_begin(&zeros, kv);
    for (size_t h = kv->first_head[layer]; h < kv->first_head[layer + 1]; h++) {
        const struct device_addr buffer = buffer_of(kv, seq, h);
        const size_t bytes = kv->head[h].bytes;
        kv_copies_add(&moves, addr_add(buffer, to * bytes), addr_add(buffer, from * bytes),
                      rows * bytes, 0);
        kv_copies_add(&zeros, buffer, buffer, 0, to * bytes);
    }
    kv_copies_end(&moves);
    kv_copies_end(&zeros);
    return rows;
}

/* Copies the sinks of a layer to the buffer that keeps them. All are committed when the window leaves them, since
 * there are no more than rows in it. */
static void keep_sinks(struct kv *kv, size_t seq, size_t layer)
{
    const struct window_layout *p = &windows_of(kv)->layout[layer];
    const size_t start = p->before - window_of(kv, seq)->origin[layer];
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = kv->first_head[layer]; h < kv->first_head[layer + 1]; h++)
        kv_copies_add(&copies, sinks_of(kv, seq, h),
                      addr_add(buffer_of(kv, seq, h), start * kv->head[h].bytes),
                      p->sinks * kv->head[h].bytes, 0);
    kv_copies_end(&copies);
}

/* Makes room in a layer's buffers for `rows` rows from buffer index end - origin on: if they do not
 * fit, moves the window to the front. Returns the rows moved per head. An empty sequence, which
 * gets all rows of a snapshot at once, has none to move: its window will be the last of these. */
static size_t roll_over(struct kv *kv, size_t seq, size_t layer, size_t end, size_t rows)
{
    const struct window_layout *p = &windows_of(kv)->layout[layer];
    size_t *origin = &window_of(kv, seq)->origin[layer];
    if (end + rows <= *origin + p->rows)
        return 0;
    const bool empty = kv->seq[seq].n == 0;
    const size_t first = (empty ? end + rows : end) - p->past;
    const size_t front = first / TILE_ROWS * TILE_ROWS, from = front - *origin;
    if (p->sinks && has_start(kv, seq, layer) && front > p->before)
        keep_sinks(kv, seq, layer);
    *origin = front;
    return move_rows(kv, seq, layer, from, 0, empty ? 0 : end - front);
}

static void count_moved(struct kv *kv, size_t rows, double start)
{
    kv->stats.copied_rows += rows;
    if (rows)
        kv->stats.copy_ms += clock_ms() - start;
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    if (allocate(kv, seq, err) < 0)
        return -1;
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const size_t end = kv_position(kv, seq) + windows_of(kv)->layout[l].before;
        copied = size_max(copied, roll_over(kv, seq, l, end, rows));
    }
    count_moved(kv, copied, start);
    return 0;
}

/* Undoes roll_over() in a layer after truncation to position `end`; returns the rows moved per
 * head. The buffer has room for them, as for a window that begins anywhere in a tile. */
static size_t roll_back(struct kv *kv, size_t seq, size_t layer, size_t end)
{
    const struct window_layout *p = &windows_of(kv)->layout[layer];
    size_t *origin = &window_of(kv, seq)->origin[layer];
    const size_t place = end + p->before, front = (place - p->past) / TILE_ROWS * TILE_ROWS;
    if (front >= *origin)
        return 0;
    const size_t to = *origin - front, rows = place - *origin;
    *origin = front;
    return move_rows(kv, seq, layer, 0, to, rows);
}

/* Truncates the sequence to position `end`. If its window then begins before the buffer's origin,
 * its rows are moved back by whole tiles, and the rows before them are zeroed. */
static void rewind_to(struct kv *kv, size_t seq, size_t end)
{
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        copied = size_max(copied, roll_back(kv, seq, l, end));
    count_moved(kv, copied, start);
}

/* ---- the policy ---- */

/* A span of a layer's rows from position `first` on. */
static struct kv_span span_of(const struct kv *kv, size_t seq, size_t layer, size_t head, size_t first,
                              size_t rows)
{
    const struct window_layout *p = &windows_of(kv)->layout[layer];
    const size_t k_bytes = kv_row_bytes(kv, layer, KV_K), v_bytes = kv_row_bytes(kv, layer, KV_V);
    const size_t place = first + p->before - window_of(kv, seq)->origin[layer];
    return (struct kv_span){
        .k = addr_add(buffer_of(kv, seq, kv_k_head(kv, layer, head)), place * k_bytes),
        .v = addr_add(buffer_of(kv, seq, kv_v_head(kv, layer, head)), place * v_bytes),
        .head_stride = {p->rows * k_bytes, p->rows * v_bytes},
        .row_stride = {k_bytes, v_bytes},
        .first = first,
        .rows = rows,
        .valid = rows,
    };
}

/* The span of a layer's sinks, where the window has left them. */
static struct kv_span sinks_span(const struct kv *kv, size_t seq, size_t layer, size_t head,
                                 size_t rows)
{
    const size_t sinks = windows_of(kv)->layout[layer].sinks, k_bytes = kv_row_bytes(kv, layer, KV_K),
                 v_bytes = kv_row_bytes(kv, layer, KV_V);
    if (has_start(kv, seq, layer))
        return span_of(kv, seq, layer, head, 0, rows);
    return (struct kv_span){
        .k = sinks_of(kv, seq, kv_k_head(kv, layer, head)),
        .v = sinks_of(kv, seq, kv_v_head(kv, layer, head)),
        .head_stride = {sinks * k_bytes, sinks * v_bytes},
        .row_stride = {k_bytes, v_bytes},
        .rows = rows,
        .valid = rows,
    };
}

/* Implements kv_policy.view. The view begins at the tile of the oldest row that the first pending
 * row sees, or at position 0 with padding before it. Sinks before that tile are a span of their own. */
static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct window_layout *p = &windows_of(kv)->layout[layer];
    const size_t sees = kv_position(kv, seq) + p->before - p->past;
    const size_t first = size_max(sees / TILE_ROWS * TILE_ROWS, p->before) - p->before;
    const size_t rows = kv->seq[seq].first + valid - first;
    /* rows and padding are in the buffer */
    assert(sees / TILE_ROWS * TILE_ROWS >= window_of(kv, seq)->origin[layer]);
    out->offset[KV_K] = out->offset[KV_V] = 0;
    out->padded = kv->attend == KV_ATTEND_WINDOW && sees < p->before
                      ? p->before - sees / TILE_ROWS * TILE_ROWS
                      : 0;
    out->n_spans = 0;
    out->span = out->inline_span;
    if (p->sinks) {
        out->sink = kv->setup.sinks;
        out->recent = p->past + 1;
    }
    if (p->sinks && first)
        out->inline_span[out->n_spans++] = sinks_span(kv, seq, layer, head, size_min(p->sinks, first));
    out->inline_span[out->n_spans++] = span_of(kv, seq, layer, head, first, rows);
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        release_seq(kv, seq);
    else
        rewind_to(kv, seq, kv->seq[seq].first + rows + n_extra);
}

/* Implements kv_policy.bytes: a sequence's buffers are allocated at once, whatever its length. */
static size_t window_bytes(const struct kv *kv, const struct kv_shape *shape, size_t rows)
{
    (void)shape;
    return rows ? windows_of(kv)->bytes : 0;
}

/* Copies K and V from sequence `from` to the same buffer indices of sequence `to`: of
 * the first `rows` rows, those still in the buffer. The buffer of `to` has zeros before them. */
static void copy_windows(struct kv *kv, size_t to, size_t from, size_t rows)
{
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = 0; h < kv->n_heads; h++) {
        const struct kv_head *head = &kv->head[h];
        const size_t first = kv->seq[from].first + windows_of(kv)->layout[head->layer].before,
                     origin = window_of(kv, from)->origin[head->layer], begin = size_max(first, origin);
        if (first + rows > begin)
            kv_copies_add(&copies, addr_add(buffer_of(kv, to, h), (begin - origin) * head->bytes),
                          addr_add(buffer_of(kv, from, h), (begin - origin) * head->bytes),
                          (first + rows - begin) * head->bytes, 0);
        if (windows_of(kv)->layout[head->layer].sinks && !has_start(kv, from, head->layer))
            kv_copies_add(&copies, sinks_of(kv, to, h), sinks_of(kv, from, h),
                          windows_of(kv)->layout[head->layer].sinks * head->bytes, 0);
    }
    kv_copies_end(&copies);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (allocate(kv, to, err) < 0)
        return -1;
    const double start = clock_ms();
    memcpy(window_of(kv, to)->origin, window_of(kv, from)->origin,
           kv->setup.shape.layers * sizeof(size_t));
    copy_windows(kv, to, from, rows);
    kv->stats.copy_ms += clock_ms() - start;
    rewind_to(kv, to, kv->seq[from].first + rows);
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
    .row_at = row_at,
    .append = kv_rows_append,
    .view = view,
    .accept = accept,
    .fork = fork_rows,
    .bytes = window_bytes,
};
