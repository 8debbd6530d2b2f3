/* Buffers of the rolling KV cache (policy `shift`), and their moving windows. */
#include "kv/policy/kv_window.h"

#include "base/clock.h"
#include "base/threads.h"

char *kv_window_head(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    const struct window_layout *p = &kv_windows_of(kv)->layout[layer];
    return kv_window_of(kv, seq)->rows + p->at +
           (v * kv->setup.shape.kv_heads + head) * kv_window_stride(kv, p);
}

char *kv_window_row(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    const size_t layer = matrix / kv_matrices(kv),
                 at = kv->seq[seq].first + row + kv_windows_of(kv)->layout[layer].before,
                 origin = kv_window_of(kv, seq)->origin[layer];
    return at < origin ? NULL
                       : kv_window_head(kv, seq, layer, matrix % kv_matrices(kv), head) +
                             (at - origin) * kv_row_bytes(kv);
}

int kv_window_ensure(struct kv *kv, size_t seq, struct err *err)
{
    const double start = clock_ms();
    struct kv_window *w = kv_window_of(kv, seq);
    if (w->rows)
        return 0;
    w->rows = vm_get(kv->spec.alloc, kv_windows_of(kv)->bytes);
    if (!w->rows)
        return err_no_memory(err,
                             "a rolling KV cache of %zu rows with its slack, %zu "
                             "bytes; use a smaller -c or -np",
                             kv->setup.window, kv_windows_of(kv)->bytes);
    kv_zero(w->rows, kv_windows_of(kv)->bytes);
    kv_count_memory(kv, kv_windows_of(kv)->bytes, 0);
    kv->stats.allocations++;
    kv->stats.alloc_ms += clock_ms() - start;
    kv->seq[seq].cap = kv_windows_of(kv)->layout[0].rows;
    return 0;
}

void kv_window_release(struct kv *kv, size_t seq)
{
    struct kv_window *w = kv_window_of(kv, seq);
    if (!w->rows)
        return;
    kv_count_memory(kv, 0, kv_windows_of(kv)->bytes);
    vm_free(kv->spec.alloc, w->rows, kv_windows_of(kv)->bytes);
    w->rows = NULL;
    memset(w->origin, 0, kv->setup.shape.layers * sizeof *w->origin);
    kv->seq[seq].cap = 0;
}

struct moving {
    const struct kv *kv;
    size_t seq, layer, from, to, rows;
};

/* Moves rows within the buffer of one head's K or V, from row m->from to row m->to on, and zeroes
 * all rows before them. */
static void move_head(void *arg, size_t index)
{
    const struct moving *m = arg;
    const size_t heads = m->kv->setup.shape.kv_heads, bytes = kv_row_bytes(m->kv);
    char *rows = kv_window_head(m->kv, m->seq, m->layer, index / heads, index % heads);
    memmove(rows + m->to * bytes, rows + m->from * bytes, m->rows * bytes);
    memset(rows, 0, m->to * bytes);
}

/* Moves rows in all heads of K and V of a layer; returns the rows moved per head. */
static size_t move_rows(struct kv *kv, struct moving *m)
{
    const size_t heads = kv_matrices(kv) * kv->setup.shape.kv_heads;
    parallel_for(heads, heads * m->rows * kv_row_bytes(kv), move_head, m);
    kv_count_copied(kv, heads * m->rows * kv_row_bytes(kv));
    return m->rows;
}

/* Makes room in a layer's buffers for `rows` rows from buffer index end - origin on: if they do not
 * fit, moves the window to the front. Returns the rows moved per head. An empty sequence, which
 * gets all rows of a snapshot at once, has none to move: its window will be the last of these. */
static size_t roll_over(struct kv *kv, size_t seq, size_t layer, size_t end, size_t rows)
{
    const struct window_layout *p = &kv_windows_of(kv)->layout[layer];
    size_t *origin = &kv_window_of(kv, seq)->origin[layer];
    if (end + rows <= *origin + p->rows)
        return 0;
    const bool empty = kv->seq[seq].n == 0;
    const size_t first = (empty ? end + rows : end) - p->past;
    const size_t front = first / TILE_ROWS * TILE_ROWS;
    struct moving m = {kv, seq, layer, front - *origin, 0, empty ? 0 : end - front};
    *origin = front;
    return move_rows(kv, &m);
}

static void count_moved(struct kv *kv, size_t rows, double start)
{
    kv->stats.copied_rows += rows;
    if (rows)
        kv->stats.copy_ms += clock_ms() - start;
}

void kv_window_make_room(struct kv *kv, size_t seq, size_t rows)
{
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const size_t end = kv_position(kv, seq) + kv_windows_of(kv)->layout[l].before;
        copied = size_max(copied, roll_over(kv, seq, l, end, rows));
    }
    count_moved(kv, copied, start);
}

/* Undoes roll_over() in a layer after truncation to position `end`; returns the rows moved per
 * head. The buffer has room for them, as for a window that begins anywhere in a tile. */
static size_t roll_back(struct kv *kv, size_t seq, size_t layer, size_t end)
{
    const struct window_layout *p = &kv_windows_of(kv)->layout[layer];
    size_t *origin = &kv_window_of(kv, seq)->origin[layer];
    const size_t place = end + p->before, front = (place - p->past) / TILE_ROWS * TILE_ROWS;
    if (front >= *origin)
        return 0;
    struct moving m = {kv, seq, layer, 0, *origin - front, place - *origin};
    *origin = front;
    return move_rows(kv, &m);
}

void kv_window_rewind(struct kv *kv, size_t seq, size_t end)
{
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        copied = size_max(copied, roll_back(kv, seq, l, end));
    count_moved(kv, copied, start);
}
