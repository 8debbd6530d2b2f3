/* shift: text without end in a window (HTP note). Of every head the last S - 1 rows lie together in a buffer that is
 * larger by its slack, with zeros on their left while they are fewer. A new row is written behind them, and the window has
 * moved: no row does. Only when the buffer ends the window is copied to its front. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_window.h"

/* ---- opening ---- */

/* After a copy the window may begin anywhere in the first tile: there must be room for a row even then. */
static struct kv_plan plan_layer(size_t seen, double slack)
{
    const size_t past = seen - 1;
    return (struct kv_plan){
        .past = past,
        .before = round_up(past, TILE_ROWS),
        .rows = round_up(past + size_max((size_t)(slack * (double)past), TILE_ROWS), TILE_ROWS),
    };
}

/* Rows that fit behind a window wherever its first row lies in a tile. */
static size_t step_rows(const struct kv_plan *p) { return p->rows - p->past - (TILE_ROWS - 1); }

static struct kv_plan plan_window(const struct kv *kv, const size_t *windows, size_t layer)
{
    const size_t S = kv->setup.window, own = windows && windows[layer] ? windows[layer] : S;
    return plan_layer(size_min(own, S), kv->spec.slack);
}

/* Steps and cuts are those that every layer can take. */
static void suit(struct kv_setup *setup, const struct kv_plan *p)
{
    setup->cut_rows = size_min(setup->cut_rows, p->past);
    setup->step_rows = size_min(setup->step_rows, step_rows(p));
}

static bool plan_layers(struct kv *kv, struct kv_windows *store)
{
    struct kv_setup *setup = &kv->setup;
    const struct kv_others *others = &kv->spec.others;
    setup->cut_rows = setup->step_rows = SIZE_MAX;
    for (size_t l = 0; l < others->n_windows; l++) {
        const struct kv_plan plan = plan_window(kv, others->windows, l);
        suit(setup, &plan);
    }
    for (size_t l = 0; l < setup->shape.layers; l++) {
        struct kv_plan *p = &store->plan[l];
        size_t bytes;
        *p = plan_window(kv, kv->spec.windows, l);
        p->at = store->bytes;
        if (!size_mul(2 * setup->shape.kv_heads * kv_row_bytes(kv), p->rows, &bytes) ||
            !size_add(store->bytes, bytes, &store->bytes))
            return false;
        suit(setup, p);
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
    if (!store || !origins || !(store->plan = mem_alloc(layers, sizeof *store->plan))) {
        free(origins);
        return err_set(err, "out of memory for the cache's tables");
    }
    for (size_t s = 0; s < n; s++)
        store->window[s].origin = origins + s * layers;
    return plan_layers(kv, store)
               ? 0
               : err_set(err, "a window of %zu rows is larger than the address space",
                         kv->setup.window);
}

static void close_windows(struct kv *kv)
{
    struct kv_windows *store = kv_windows_of(kv);
    if (!store)
        return;
    free(store->window[0].origin);
    free(store->plan);
    free(store);
}

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    if (kv_window_make(kv, seq, err) < 0)
        return -1;
    kv_window_slide(kv, seq, rows);
    return 0;
}

/* From the tile on that has the first row which the step's first query sees, or from position 0, with padding on its left. */
static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct kv_plan *p = &kv_windows_of(kv)->plan[layer];
    const size_t sees = kv_position(kv, seq) + p->before - p->past, bytes = kv_row_bytes(kv);
    const size_t first = size_max(sees / TILE_ROWS * TILE_ROWS, p->before) - p->before;
    const size_t rows = kv->seq[seq].first + valid - first;
    const size_t origin = kv_window_of(kv, seq)->origin[layer];
    assert(sees / TILE_ROWS * TILE_ROWS >= origin); /* rows and padding lie in the buffer */
    const size_t place = (first + p->before - origin) * bytes;
    out->offset = 0;
    out->padded =
        kv->rows == KV_ROWS_WINDOW && sees < p->before ? p->before - sees / TILE_ROWS * TILE_ROWS : 0;
    out->n_spans = 1;
    out->span = out->few;
    out->few[0] = (struct kv_span){
        .k = kv_window_head(kv, seq, layer, 0, head) + place,
        .v = kv_window_head(kv, seq, layer, 1, head) + place,
        .head_stride = kv_window_stride(kv, p),
        .row_stride = bytes,
        .first = first,
        .rows = rows,
        .valid = rows,
    };
    return 0;
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_close_up(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        kv_window_release(kv, seq);
    else
        kv_window_recede(kv, seq, kv->seq[seq].first + rows + n_extra);
}

/* A window is made once, whatever comes. */
static size_t window_bytes(const struct kv *kv, size_t rows)
{
    return rows ? kv_windows_of(kv)->bytes : 0;
}

/* The rows that a layer still has of the first `rows` ones: to the same places, of which those in front are zeros. */
static void copy_layer(struct kv *kv, size_t to, size_t from, size_t layer, size_t rows)
{
    const struct kv_plan *p = &kv_windows_of(kv)->plan[layer];
    const size_t origin = kv_window_of(kv, from)->origin[layer], bytes = kv_row_bytes(kv);
    const size_t first = kv->seq[from].first + p->before, end = first + rows;
    const size_t begin = size_max(first, origin), heads = kv->setup.shape.kv_heads;
    for (size_t i = 0; i < 2 * heads && end > begin; i++)
        kv_copy(kv, kv_window_head(kv, to, layer, i / heads, i % heads) + (begin - origin) * bytes,
                kv_window_head(kv, from, layer, i / heads, i % heads) + (begin - origin) * bytes,
                (end - begin) * bytes);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (kv_window_make(kv, to, err) < 0)
        return -1;
    const double start = clock_ms();
    memcpy(kv_window_of(kv, to)->origin, kv_window_of(kv, from)->origin,
           kv->setup.shape.layers * sizeof(size_t));
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        copy_layer(kv, to, from, l, rows);
    kv->stats.copy_ms += clock_ms() - start;
    kv_window_recede(kv, to, kv->seq[from].first + rows);
    kv->stats.copied_rows += rows;
    return 0;
}

const struct kv_policy kv_policy_shift = {
    .name = "shift",
    .summary = "the last S rows in a window that slides, without end (shift:S=2048,slack=0.5)",
    .growth = &kv_grow_window,
    .rows = KV_ROWS_WINDOW,
    .endless = true,
    .open = open_windows,
    .room = room,
    .row_at = kv_window_row,
    .append = kv_rows_append,
    .view = view,
    .keep = keep,
    .fork = fork_rows,
    .bytes = window_bytes,
    .close = close_windows,
};
