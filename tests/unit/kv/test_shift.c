/* Policy `shift`: rolling buffers with various slacks, steps and layer windows: contents, copies,
 * conversions. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn_rows.h"
#include "base/threads.h"
#include "tests/unit/cache.h"
#include "kv/kv_policy.h"
#include "kv/kv_rows.h"

enum { LAYERS = 3, KV_HEADS = 2, D = 5, WIDTH = KV_HEADS * D, N = 4096, MOST_STEP = 64 };

/* Windows of layers: the policy's, one position more than a tile, and the smallest. */
static const size_t own_windows[LAYERS] = {0, 17, 1};

static unsigned seed;

static float value(size_t layer, size_t at, size_t column, bool v)
{
    return (float)(1 + at) + (float)(layer * 32 + column * 2 + (v && !v_in_k)) / 128;
}

static struct kv *open_window(const char *text, enum dtype type, const size_t *windows)
{
    struct kv_spec spec;
    struct err err;
    struct kv *kv = NULL;
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, type);
    if (cache_spec_parse(&spec, text, &err) == 0) {
        spec.windows = windows;
        if (kv_open(&kv, &spec, &shape, 2, &err) == 0)
            return kv;
    }
    check(false, "%s: %s", text, err.text);
    exit(1);
}

/* Appends `rows` pending KV entries. */
static bool step(struct kv *kv, size_t seq, size_t rows)
{
    static float k[MOST_STEP * WIDTH], v[MOST_STEP * WIDTH];
    struct err err;
    if (kv_ensure(kv, seq, rows, &err) < 0)
        return check(false, "no room: %s", err.text);
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < rows * WIDTH; i++) {
            k[i] = value(l, kv_position(kv, seq) + i / WIDTH, i % WIDTH, false);
            v[i] = value(l, kv_position(kv, seq) + i / WIDTH, i % WIDTH, true);
        }
        cache_append(kv, seq, l, k, v, WIDTH);
    }
    return true;
}

static float at(const struct kv_view *view, const struct kv_span *span, bool v, ptrdiff_t row,
                size_t column)
{
    const struct device_addr base = v ? span->v : span->k;
    const char *head = (const char *)cpu_at(base) + view->offset[v] + column / D * span->head_stride[v];
    return ((const float *)(const void *)(head + row * (ptrdiff_t)span->row_stride[v]))[column % D];
}

/* Positions [first, end) of a span have their values. */
static bool span_is(const struct kv_view *view, const struct kv_span *span, size_t layer, size_t column,
                    size_t first, size_t end)
{
    bool ok = true;
    for (size_t p = first; p < end; p++)
        for (int v = 0; v < 2; v++)
            ok = ok &&
                 at(view, span, v, (ptrdiff_t)(p - span->first), column) == value(layer, p, column, v);
    return ok;
}

/* A layer's view begins at the tile of the first row that the query sees, or with the sinks before it;
 * padding is zeros, all rows are finite. */
static bool layer_is(struct kv *kv, size_t seq, size_t layer, size_t window)
{
    struct kv_view view;
    struct err err;
    const struct kv_seq_info fill = kv_seq_info(kv, seq);
    const size_t n = fill.first + fill.n, end = n + fill.pending;
    const size_t first = n - size_min(n, window - 1), padded = window - 1 - (n - first);
    bool ok = kv_view(kv, seq, layer, 0, KV_HEADS, &view, &err) == 0;
    const size_t sinks = own_windows[layer] == window ? 0 : kv_setup(kv)->sinks;
    const bool apart = sinks && first >= TILE_ROWS;
    const struct kv_span *span = &view.span[apart];
    ok = ok && !kv_view_problem(&view, kv_layer_sizes(kv, layer), end) &&
         view.n_spans == 1 + (size_t)apart && view.sink == sinks &&
         view.recent == (sinks ? window : 0) && view.span[0].first == (apart ? 0 : span->first) &&
         span->first == first / TILE_ROWS * TILE_ROWS &&
         view.padded == (kv->attend == KV_ATTEND_WINDOW && !first ? round_up(padded, TILE_ROWS) : 0);
    for (size_t c = 0; ok && c < WIDTH; c++) {
        ok = span_is(&view, span, layer, c, first, end) &&
             (!apart || span_is(&view, view.span, layer, c, 0, size_min(sinks, span->first)));
        for (size_t i = 1; i <= view.padded; i++)
            ok = ok && at(&view, span, false, -(ptrdiff_t)i, c) == 0 &&
                 at(&view, span, true, -(ptrdiff_t)i, c) == 0;
        for (size_t p = span->first; p < round_up(end, TILE_ROWS); p++)
            ok = ok && isfinite(at(&view, span, false, (ptrdiff_t)(p - span->first), c));
    }
    return ok;
}

/* Random steps, partly accepted, far beyond the window. */
static void test_rows(const char *text, size_t S, bool layers)
{
    struct kv *kv = open_window(text, DTYPE_F32, layers ? own_windows : NULL);
    const struct kv_setup *setup = kv_setup(kv);
    const size_t most = size_min(MOST_STEP, setup->step_rows);
    check(setup->window == S && most >= 1, "%s: a window of %zu rows", text, setup->window);
    while (kv_position(kv, 0) < 6 * S + 40) {
        const size_t rows = 1 + (size_t)rand_r(&seed) % most, kept = (size_t)rand_r(&seed) % (rows + 1);
        if (!step(kv, 0, rows))
            break;
        for (size_t l = 0; l < LAYERS; l++) {
            const size_t own = layers && own_windows[l] ? size_min(own_windows[l], S) : S;
            check(layer_is(kv, 0, l, own), "%s: layer %zu differs at %zu + %zu", text, l,
                  kv_position(kv, 0), rows);
        }
        kv_commit(kv, 0, kept);
        const struct kv_seq_info fill = kv_seq_info(kv, 0);
        check(fill.n == size_min(fill.first + fill.n, S - 1), "%s: %zu rows at %zu", text, fill.n,
              fill.first);
    }
    kv_truncate(kv, 0, 0);
    check(kv_seq_info(kv, 0).first == 0 && kv->stats.resident_bytes == 0, "%s: memory is left", text);
    check(step(kv, 0, 1) && layer_is(kv, 0, 0, S), "%s: cannot start again", text);
    kv_close(kv);
}

/* The HTP note's buffers, 2 (S - 1) rows per head or one and a half times S - 1: the window is
 * copied when the slack is used up, and each row is converted once. */
static void test_costs(enum dtype type)
{
    enum { S = 65, TOKENS = 1000 };
    static const struct {
        const char *text;
        size_t rows;
    } kinds[] = {{"shift:S=65", 128}, {"shift:S=65,slack=0.5", 96}, {"shift:S=65,slack=0", 80}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct kv *kv = open_window(kinds[i].text, type, NULL);
        const size_t row = cache_matrices() * LAYERS * KV_HEADS * dtype_row_bytes(type, D),
                     slack = kinds[i].rows - S + 1;
        size_t copies = 0, before = 0;
        for (size_t t = 0; t < TOKENS && step(kv, 0, 1); t++) {
            kv_commit(kv, 0, 1);
            copies += kv->stats.copied_rows > before;
            before = kv->stats.copied_rows;
        }
        check(kv->stats.peak_bytes == kinds[i].rows * row && kv->stats.allocations == 1,
              "%s: %zu bytes for %zu rows of %zu", kinds[i].text, kv->stats.peak_bytes, kinds[i].rows,
              row);
        check(copies >= (TOKENS - slack) / slack && copies <= TOKENS / (slack - TILE_ROWS + 1),
              "%s: %zu copies of %zu tokens", kinds[i].text, copies, (size_t)TOKENS);
        check(kv->stats.copied_rows <= copies * (S + TILE_ROWS) &&
                  kv->stats.copied_bytes == kv->stats.copied_rows * row,
              "%s: %zu rows, %zu bytes copied", kinds[i].text, kv->stats.copied_rows,
              kv->stats.copied_bytes);
        check(atomic_load(&kv->converted_rows) == (size_t)TOKENS * LAYERS * KV_HEADS * cache_matrices(),
              "%s: %zu roundings", kinds[i].text, atomic_load(&kv->converted_rows));
        kv_close(kv);
    }
}

/* Rows are read and attached to another sequence; a fork continues independently. */
static void test_copies(void)
{
    enum { S = 40 };
    struct kv *kv = open_window("shift:S=40,slack=0.5", DTYPE_F32, own_windows);
    struct err err;
    static float rows[LAYERS][2][KV_HEADS][48][D];
    struct kv_layer_rows in[LAYERS];
    while (kv_position(kv, 0) < 150 && step(kv, 0, 1))
        kv_commit(kv, 0, 1);
    check(kv_fork(kv, 1, 0, 150, &err) == 0 && step(kv, 1, 1) && step(kv, 0, 1), "a fork: %s",
          err.text);
    for (size_t l = 0; l < LAYERS; l++) {
        const size_t own = own_windows[l] ? own_windows[l] : S;
        in[l] =
            (struct kv_layer_rows){cpu_addr(rows[l][0]), cpu_addr(rows[l][1]), {DTYPE_F32, DTYPE_F32}};
        check(layer_is(kv, 0, l, own) && layer_is(kv, 1, l, own), "a fork's layer %zu", l);
        for (size_t h = 0; h < 2 * KV_HEADS; h++)
            check(kv_read(kv, 0, l, h % 2, h / 2, rows[l][h % 2][h / 2], &err) == 0, "%s", err.text);
    }
    kv_truncate(kv, 1, 0);
    check(kv_attachable(kv, 111, 39) == 39 && kv_attachable(kv, 111, 38) == 0 &&
              kv_attachable(kv, 0, 99) == 39,
          "rows that can be attached");
    check(kv_attach(kv, 1, in, 111, 39, 48, &err) == 0 && step(kv, 1, 1), "attaching: %s", err.text);
    for (size_t l = 0; l < LAYERS; l++)
        check(layer_is(kv, 1, l, own_windows[l] ? own_windows[l] : S), "attached layer %zu", l);
    kv_close(kv);
}

/* A fork has the sinks that its window has left, too; entries without them are not attached. */
static void test_sinks(void)
{
    struct kv *kv = open_window("shift:S=48,sinks=20", DTYPE_F32, NULL);
    struct err err;
    const size_t row = cache_matrices() * LAYERS * KV_HEADS * D * sizeof(float);
    while (kv_position(kv, 0) < 150 && step(kv, 0, 1))
        kv_commit(kv, 0, 1);
    check(kv->stats.resident_bytes == (64 + 32) * row, "%zu bytes", kv->stats.resident_bytes);
    check(kv_fork(kv, 1, 0, 150, &err) == 0 && step(kv, 1, 1) && step(kv, 0, 1), "a fork: %s",
          err.text);
    for (size_t l = 0; l < LAYERS; l++)
        check(layer_is(kv, 0, l, 28) && layer_is(kv, 1, l, 28), "a fork's layer %zu", l);
    check(kv_attachable(kv, 111, 27) == 0 && kv_attachable(kv, 0, 99) == 27, "rows to attach");
    char text[64];
    kv_spec_format(kv, text, sizeof text);
    check(strcmp(text, "shift:S=48,sinks=20") == 0, "%s", text);
    kv_close(kv);
}

/* Rows of a draft tree's first block that are between sinks and window are found in memory of the view: no query sees
 * them, but kernels read them. */
static void test_gap(void)
{
    enum { ENTRIES = 37 };
    struct kv *kv = open_window("shift:S=12,sinks=5", DTYPE_F32, NULL);
    struct kv_view view;
    struct tiles tiles;
    struct row_tables tables;
    struct err err;
    size_t entry[ENTRIES];
    while (kv_position(kv, 0) < 100 && step(kv, 0, 1))
        kv_commit(kv, 0, 1);
    check(step(kv, 0, 1) && kv_view(kv, 0, 0, 0, 1, &view, &err) == 0 && view.n_spans == 2 &&
              view.span[1].first == 80,
          "a window apart from its sinks");
    for (size_t i = 0; i < ENTRIES; i++)
        entry[i] = 64 + i;
    const size_t n = view_scattered(&view, entry, ENTRIES, &tiles, &tables);
    for (size_t i = 0; i < n * ATTEND_TILE; i++) {
        const char *k = tiles.k[i / ATTEND_TILE] + tables.k[i];
        const size_t row = size_max(entry[size_min(i, ENTRIES - 1)], 80) - 80;
        check(k == span_k(&view.span[1]) + view.offset[KV_K] + row * view.span[1].row_stride[KV_K],
              "position %zu is elsewhere", entry[size_min(i, ENTRIES - 1)]);
    }
    kv_close(kv);
}

static void test_parameters(void)
{
    static const char *const good[] = {"shift", "shift:S=2", "shift:slack=0",
                                       "shift:sinks=4,slack=0.25,S=9"};
    static const char *const bad[] = {"shift:",          "shift:S=1",      "shift:S=9,",
                                      "shift:9",         "shift:slack=x",  "shift:slack=-1",
                                      "shift:slack=nan", "shift:slack=17", "shift:sinks=x"};
    struct kv_spec spec;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        check(cache_spec_parse(&spec, good[i], &err) == 0, "%s: %s", good[i], err.text);
    check(spec.window == 9 && spec.slack == 0.25 && spec.sinks == 4, "the last one's numbers");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check(cache_spec_parse(&spec, bad[i], &err) < 0 && strstr(err.text, bad[i]) != NULL,
              "%s is taken", bad[i]);
}

/* Layers of other shards limit steps and cuts like own ones. */
static void test_others(void)
{
    static const size_t whole[] = {20, 0}; /* the second is S, of which a step is one row */
    const struct kv_shape shape =
        kv_shape_uniform(1, (struct kv_sizes){.kv_heads = 2, .head_dim = 8}, 128, DTYPE_F32);
    struct kv_spec spec;
    struct err err;
    for (size_t own = 0; own < 2; own++) {
        struct kv *kv;
        check(cache_spec_parse(&spec, "shift:S=33,slack=0", &err) == 0, "%s", err.text);
        spec.windows = whole + own;
        spec.shards = (struct kv_shards){.windows = whole, .n_windows = 2};
        if (!check(kv_open(&kv, &spec, &shape, 1, &err) == 0, "%s", err.text))
            return;
        check(kv_setup(kv)->step_rows == 1 && kv_untrimmed_limit(kv) == 19,
              "layer %zu of 2: steps of %zu, cut up to %zu", own, kv_setup(kv)->step_rows,
              kv_untrimmed_limit(kv));
        kv_close(kv);
    }
}

static void test_all(void)
{
    static const struct {
        const char *text;
        size_t S;
    } windows[] = {{"shift:S=2", 2},           {"shift:S=16,slack=0", 16},
                   {"shift:S=33", 33},         {"shift:S=50,slack=0.5", 50},
                   {"shift:S=64,slack=3", 64}, {"shift:S=100,slack=0.3", 100},
                   {"shift:S=4,sinks=2", 2},   {"shift:S=37,sinks=4,slack=0", 33},
                   {"shift:S=90,sinks=40", 50}};
    for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
        test_rows(windows[i].text, windows[i].S, false);
        test_rows(windows[i].text, windows[i].S, true);
    }
    test_costs(DTYPE_F32);
    test_costs(DTYPE_Q8_CHANNEL);
    test_copies();
    test_sinks();
    test_gap();
    test_parameters();
    test_others();
}

int main(void)
{
    threads_set(2);
    seed = (unsigned)check_seed(1);
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
