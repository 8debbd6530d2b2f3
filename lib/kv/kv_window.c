/* Buffers in which windows slide. */
#include "kv/kv_window.h"

#include "base/clock.h"
#include "base/threads.h"

char *kv_window_head(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    const struct kv_plan *p = &kv_windows_of(kv)->plan[layer];
    return kv_window_of(kv, seq)->rows + p->at +
           (v * kv->setup.shape.kv_heads + head) * kv_window_stride(kv, p);
}

char *kv_window_row(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    const size_t layer = matrix / 2,
                 at = kv->seq[seq].first + row + kv_windows_of(kv)->plan[layer].before,
                 origin = kv_window_of(kv, seq)->origin[layer];
    return at < origin
               ? NULL
               : kv_window_head(kv, seq, layer, matrix % 2, head) + (at - origin) * kv_row_bytes(kv);
}

int kv_window_make(struct kv *kv, size_t seq, struct err *err)
{
    const double start = clock_ms();
    struct kv_window *w = kv_window_of(kv, seq);
    if (w->rows)
        return 0;
    w->rows = pages_get(kv->alloc, kv_windows_of(kv)->bytes);
    if (!w->rows)
        return err_set(err,
                       "out of memory: a window of %zu rows of KV cache, with its slack, needs %zu "
                       "bytes; use a smaller -c or -b",
                       kv->setup.window, kv_windows_of(kv)->bytes);
    kv_clear(w->rows, kv_windows_of(kv)->bytes);
    memset(w->origin, 0, kv->setup.shape.layers * sizeof *w->origin);
    kv_count_bytes(kv, kv_windows_of(kv)->bytes, 0);
    kv->stats.allocations++;
    kv->stats.alloc_ms += clock_ms() - start;
    kv->seq[seq].cap = kv_windows_of(kv)->plan[0].rows;
    return 0;
}

void kv_window_release(struct kv *kv, size_t seq)
{
    struct kv_window *w = kv_window_of(kv, seq);
    if (!w->rows)
        return;
    kv_count_bytes(kv, 0, kv_windows_of(kv)->bytes);
    pages_free(kv->alloc, w->rows, kv_windows_of(kv)->bytes);
    w->rows = NULL;
    kv->seq[seq].cap = 0;
}

struct moving {
    const struct kv *kv;
    size_t seq, layer, from, to, rows;
};

/* One head of K or V: rows move within its buffer. Zeros fill the places in front of them. */
static void move_head(void *arg, size_t index)
{
    const struct moving *m = arg;
    const size_t heads = m->kv->setup.shape.kv_heads, bytes = kv_row_bytes(m->kv);
    char *rows = kv_window_head(m->kv, m->seq, m->layer, index / heads, index % heads);
    memmove(rows + m->to * bytes, rows + m->from * bytes, m->rows * bytes);
    memset(rows, 0, m->to * bytes);
}

/* All heads of K and V of a layer. Returns the rows of a head that were copied. */
static size_t move_rows(struct kv *kv, struct moving *m)
{
    const size_t heads = 2 * kv->setup.shape.kv_heads;
    threads_each(heads, heads * m->rows * kv_row_bytes(kv), move_head, m);
    kv_count_copied(kv, heads * m->rows * kv_row_bytes(kv));
    return m->rows;
}

/* Room for `rows` rows of a layer behind place `end`; returns the rows of a head that were copied. The rows of a snapshot come
 * all at once: they are the window then, if they do not fit otherwise. */
static size_t roll_over(struct kv *kv, size_t seq, size_t layer, size_t end, size_t rows)
{
    const struct kv_plan *p = &kv_windows_of(kv)->plan[layer];
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

void kv_window_slide(struct kv *kv, size_t seq, size_t rows)
{
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const size_t end = kv_position(kv, seq) + kv_windows_of(kv)->plan[l].before;
        copied = size_max(copied, roll_over(kv, seq, l, end, rows));
    }
    count_moved(kv, copied, start);
}

/* The inverse of roll_over(). A window fits wherever in a tile it begins, so the rows that stay do. */
static size_t roll_back(struct kv *kv, size_t seq, size_t layer, size_t end)
{
    const struct kv_plan *p = &kv_windows_of(kv)->plan[layer];
    size_t *origin = &kv_window_of(kv, seq)->origin[layer];
    const size_t place = end + p->before, front = (place - p->past) / TILE_ROWS * TILE_ROWS;
    if (front >= *origin)
        return 0;
    struct moving m = {kv, seq, layer, 0, *origin - front, place - *origin};
    *origin = front;
    return move_rows(kv, &m);
}

void kv_window_recede(struct kv *kv, size_t seq, size_t end)
{
    const double start = clock_ms();
    size_t copied = 0;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        copied = size_max(copied, roll_back(kv, seq, l, end));
    count_moved(kv, copied, start);
}
