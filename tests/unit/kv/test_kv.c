/* Every cache policy: rows are read back unchanged, statistics follow closed formulas, and
 * attention equals a plain double loop. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "base/threads.h"
#include "tests/unit/cache.h"
#include "kv/kv_policy.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, D = 8, WIDTH = KV_HEADS * D };

/* An element of a KV entry: depends on layer, position, column and K or V; exact in bf16. */
static float value(size_t layer, size_t position, size_t column, bool is_v)
{
    return (float)((position * 7 + column * 3 + layer * 5 + (is_v && !v_in_k)) % 251) - 125;
}

static void fill_rows(float *k, float *v, size_t layer, size_t first, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < WIDTH; j++) {
            k[i * WIDTH + j] = value(layer, first + i, j, false);
            v[i * WIDTH + j] = value(layer, first + i, j, true);
        }
}

static struct kv *open_cache(const char *spec_text, size_t N, size_t seqs, enum dtype type)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, type);
    return cache_of(spec_text, &shape, seqs);
}

/* Appends `rows` pending KV entries, with the values of positions from `as` on. */
static bool step(struct kv *kv, size_t seq, size_t as, size_t rows)
{
    struct err err;
    float *k = malloc(rows * WIDTH * sizeof *k), *v = malloc(rows * WIDTH * sizeof *v);
    const bool ok = kv_ensure(kv, seq, rows, &err) == 0;
    for (size_t l = 0; ok && l < LAYERS; l++) {
        fill_rows(k, v, l, as, rows);
        cache_append(kv, seq, l, k, v, WIDTH);
    }
    free(k), free(v);
    return ok;
}

static float element(const struct kv_view *view, struct device_addr base, const struct kv_span *span,
                     size_t matrix, size_t head, size_t row, size_t j)
{
    const char *at = (const char *)cpu_at(base) + view->offset[matrix] +
                     head * span->head_stride[matrix] + kv_span_row(span, matrix, row);
    return view->type[matrix] == DTYPE_F32 ? ((const float *)(const void *)at)[j]
                                           : bf16_to_f32(((const bf16 *)(const void *)at)[j]);
}

/* True if the KV entries of one layer, in heads [head, head + heads), have the values of positions
 * as[0..n), and padding is finite. */
static bool heads_are(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads,
                      const size_t *as, size_t n)
{
    struct err err;
    struct kv_view view;
    size_t seen = 0;
    bool ok = true;
    kv_prefetch(kv, seq, layer, head, heads);
    if (kv_view(kv, seq, layer, head, heads, &view, &err) < 0)
        return false;
    for (size_t s = 0; s < view.n_spans; s++) {
        const struct kv_span *span = &view.span[s];
        for (size_t i = 0; i < span->rows; i++)
            for (size_t j = 0; j < heads * D; j++) {
                const float k = element(&view, span->k, span, KV_K, j / D, i, j % D),
                            v = element(&view, span->v, span, KV_V, j / D, i, j % D);
                if (i < span->valid)
                    ok = ok && k == value(layer, as[seen + i], head * D + j, false) &&
                         v == value(layer, as[seen + i], head * D + j, true);
                else
                    ok = ok && isfinite(k) && isfinite(v);
            }
        seen += span->valid;
    }
    return ok && seen == n;
}

/* heads_are() for all layers and heads, as many heads at a time as can be viewed. */
static bool rows_are(struct kv *kv, size_t seq, const size_t *as, size_t n)
{
    const size_t at_once = kv_offload(kv).heads_at_once, most = at_once ? at_once : KV_HEADS;
    bool ok = true;
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < KV_HEADS; h += most)
            ok = ok && heads_are(kv, seq, l, h, size_min(most, KV_HEADS - h), as, n);
    return ok;
}

static const char *const specs[] = {
    "iterative",  "upfront",          "bmc",         "bmc:T=1",     "bmc:T=3",        "paged",
    "paged:32",   "reserve",          "reserve:r=5", "bmc:r=1",     "bmc:r=5",        "bmc:r=16",
    "bmc:T=9999", "bmc:T=3,grow=now", "segment",     "segment:T=3", "segment:step=5", "headwise"};

/* Policies that drop rows: test_shift.c tests the rest. */
static const char *const rolling[] = {"shift:slack=3"};

static unsigned seed;

/* Fills a sequence up to N rows with the values of positions first.., in steps of random size;
 * order[] records them. */
static void fill(struct kv *kv, size_t s, size_t N, size_t first, size_t *order, const char *spec)
{
    for (size_t i = kv->seq[s].n; i < N; i++)
        order[i] = first + i;
    while (kv->seq[s].n < N) {
        const size_t n = kv->seq[s].n, rows = size_min(1 + (size_t)rand_r(&seed) % 9, N - n);
        check(step(kv, s, first + n, rows), "%s: no room", spec);
        check(rows_are(kv, s, order, n + rows), "%s %s: rows differ at %zu + %zu", spec,
              dtype_name(kv->setup.shape.sizes[0].type[KV_K]), n, rows);
        kv_commit(kv, s, rows);
    }
    check(!step(kv, s, 0, 1), "%s: row %zu of %zu was accepted", spec, N + 1, N);
}

/* Random steps to the full context; sequences are truncated or emptied, and continued with other
 * values. */
static void test_rows(const char *spec, enum dtype type)
{
    enum { N = 67, SEQS = 3 };
    static const size_t kept[] = {0, 20, 33, 0, 20};
    struct kv *kv = open_cache(spec, N, SEQS, type);
    size_t order[SEQS][N];
    for (size_t round = 0; round < ARRAY_LEN(kept); round++)
        for (size_t s = 0; s < SEQS; s++) {
            fill(kv, s, N, 11 * s + 100 * round, order[s], spec);
            kv_truncate(kv, s, kept[round]);
            check(kv->seq[s].n == kept[round] && rows_are(kv, s, order[s], kept[round]),
                  "%s: of the first %zu rows %zu are there, or they differ", spec, kept[round],
                  kv->seq[s].n);
            check(kept[round] || kv->seq[s].cap == 0, "%s: an empty sequence has room for %zu rows",
                  spec, kv->seq[s].cap);
        }
    for (size_t s = 0; s < SEQS; s++)
        kv_truncate(kv, s, 0);
    check(kv->stats.resident_bytes == 0, "%s: %zu bytes are still there", spec,
          kv->stats.resident_bytes);
    kv_close(kv);
}

/* Draft tokens: some rows are accepted, in order; the rest becomes padding. */
static void test_accept(const char *spec)
{
    enum { N = 64 };
    struct kv *kv = open_cache(spec, N, 2, DTYPE_F32);
    const size_t kept[] = {0, 2, 3, 6}, want[] = {0, 1, 2, 3, 4, 5, 7, 8, 11, 20};
    check(step(kv, 0, 0, 5), "%s: no room", spec);
    kv_commit(kv, 0, 5);
    check(step(kv, 0, 5, 7), "%s: no room", spec);
    kv_accept(kv, 0, kept, ARRAY_LEN(kept));
    check(kv->seq[0].n == 9, "%s: %zu rows", spec, kv->seq[0].n);
    check(step(kv, 0, 20, 1), "%s: no room", spec);
    check(rows_are(kv, 0, want, ARRAY_LEN(want)), "%s: kept rows differ", spec);
    kv_commit(kv, 0, 0);
    struct err err;
    check(kv_fork(kv, 1, 0, 7, &err) == 0 && rows_are(kv, 1, want, 7), "%s: forked rows differ", spec);
    check(step(kv, 1, 30, 1) && rows_are(kv, 0, want, 9), "%s: the fork writes into its origin", spec);
    kv_close(kv);
}

/* Attached rows of either type are used in place or appended; kv_read() returns them, whatever
 * comes behind them, and sequences do not affect each other. */
static void test_attach(const char *spec, enum dtype type, enum dtype source)
{
    enum { STORED = 32, N = 70, ROWS = 21 };
    struct kv *kv = open_cache(spec, N, 2, type);
    static union {
        float f32[LAYERS][2][KV_HEADS][STORED][D];
        bf16 b16[LAYERS][2][KV_HEADS][STORED][D];
    } memory[2];
    struct kv_layer_rows layer[2][LAYERS];
    size_t order[N];
    struct err err;
    for (size_t i = 0; i < N; i++)
        order[i] = i;
    for (size_t s = 0; s < 2; s++)
        for (size_t l = 0; l < LAYERS; l++) {
            const bool f32 = source == DTYPE_F32;
            layer[s][l] = (struct kv_layer_rows){
                f32 ? cpu_addr(memory[s].f32[l][0]) : cpu_addr(memory[s].b16[l][0]),
                f32 ? cpu_addr(memory[s].f32[l][1]) : cpu_addr(memory[s].b16[l][1]),
                {source, source}};
            for (size_t i = 0; i < ROWS * WIDTH * 2; i++) {
                const size_t h = i / (ROWS * D) % KV_HEADS, row = i / D % ROWS, j = i % D,
                             v = i / (ROWS * WIDTH);
                const float x = value(l, row, h * D + j, v);
                if (source == DTYPE_F32)
                    memory[s].f32[l][v][h][row][j] = x;
                else
                    memory[s].b16[l][v][h][row][j] = bf16_from_f32(x);
            }
        }
    const bool in_place = kv_attaches(kv, layer[0]);
    for (size_t s = 0; s < 2; s++)
        check(kv_attach(kv, s, layer[s], 0, ROWS, STORED, &err) == 0 && rows_are(kv, s, order, ROWS),
              "%s: attached rows differ", spec);
    check(kv->stats.copied_rows == (in_place ? 0 : 2 * ROWS) &&
              kv->stats.attached_rows == (in_place ? 2 * ROWS : 0) && kv->seq[0].attached == in_place,
          "%s: attaching copied %zu rows", spec, kv->stats.copied_rows);
    for (size_t n = ROWS; n < N; n++) {
        check(step(kv, 0, n, 1) && rows_are(kv, 0, order, n + 1), "%s: row %zu after attaching", spec,
              n);
        kv_commit(kv, 0, 1);
        check(!in_place || strncmp(spec, "bmc", 3) != 0 || kv->seq[0].attached == (n < STORED),
              "%s: %s after %zu rows", spec, kv->seq[0].attached ? "attached" : "not attached", n + 1);
    }
    check(rows_are(kv, 1, order, ROWS), "%s: one sequence writes into another", spec);
    for (size_t h = 0; h < KV_HEADS; h++) {
        union {
            float f32[N][D];
            bf16 b16[N][D];
        } rows;
        bool same = kv_read(kv, 0, 1, true, h, &rows, &err) == 0;
        for (size_t i = 0; i < N * D; i++)
            same = same && value(1, i / D, h * D + i % D, true) ==
                               (type == DTYPE_F32 ? rows.f32[i / D][i % D]
                                                  : bf16_to_f32(rows.b16[i / D][i % D]));
        check(same, "%s: rows read back differ", spec);
    }
    /* Accepted rows may be behind the end of the attached memory. */
    const size_t kept[] = {0, 9, 12, 13};
    size_t mixed[ROWS + 14];
    for (size_t i = 0; i < ROWS + 14; i++)
        mixed[i] = i < ROWS ? i : ROWS + kept[size_min(i - ROWS, 3)];
    check(step(kv, 1, ROWS, 14), "%s: no room", spec);
    kv_accept(kv, 1, kept, ARRAY_LEN(kept));
    check(rows_are(kv, 1, mixed, ROWS + ARRAY_LEN(kept)), "%s: kept rows differ", spec);
    kv_truncate(kv, 0, 0);
    check(kv_fork(kv, 0, 1, ROWS + 4, &err) == 0 && rows_are(kv, 0, mixed, ROWS + 4),
          "%s: a fork of attached rows differs", spec);
    kv_close(kv);
}

/* Token by token up to N rows: the formulas of bmc-gen(1). */
static void test_statistics(const char *spec, size_t N, size_t allocations, size_t copied,
                            size_t padded)
{
    struct kv *kv = open_cache(spec, N, 1, DTYPE_F32);
    for (size_t n = 0; n < N; n++) {
        check(step(kv, 0, n, 1), "%s: no room", spec);
        kv_commit(kv, 0, 1);
    }
    const size_t row = cache_matrices() * LAYERS * KV_HEADS * D * sizeof(float);
    check(kv->stats.allocations == allocations, "%s: %zu allocations, %zu wanted", spec,
          kv->stats.allocations, allocations);
    check(kv->stats.copied_rows == copied, "%s: %zu rows copied, %zu wanted", spec,
          kv->stats.copied_rows, copied);
    check(kv->stats.copied_bytes == copied * row, "%s: %zu bytes copied", spec, kv->stats.copied_bytes);
    check(kv->stats.padded_rows == padded, "%s: %zu padded rows, %zu wanted", spec,
          kv->stats.padded_rows, padded);
    check(kv->stats.rows_computed == padded + N * (N + 1) / 2, "%s: %zu rows computed", spec,
          kv->stats.rows_computed);
    check(kv->stats.peak_bytes >= N * row, "%s: peak of %zu bytes", spec, kv->stats.peak_bytes);
    kv_close(kv);
}

static void test_specs(void)
{
    struct kv_spec spec;
    struct err err;
    static const char *const bad[] = {"",
                                      "bm",
                                      "bmcc",
                                      "bmc:",
                                      "bmc:T=",
                                      "bmc:T=0",
                                      "bmc:r=-1",
                                      "bmc:T=1x",
                                      "bmc:x=3",
                                      "upfront:T=2",
                                      "iterative:",
                                      "bmc:T=99999999999999999999999",
                                      "bmc:grow=",
                                      "bmc:grow=later",
                                      "bmc:T=2,r=2",
                                      "bmc:r=2,T=2",
                                      "bmc:r=2,",
                                      "segment:r=2,grow=now",
                                      "bmc:grow=now,grow=now"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check(cache_spec_parse(&spec, bad[i], &err) < 0, "\"%s\" was accepted", bad[i]);
    /* sqrt(0.1 * N) = 3.6, 7.2, 10.1, 14.3, 20.2, 40.5 */
    check(kv_default_T(128) == 4 && kv_default_T(512) == 8 && kv_default_T(1024) == 8 &&
              kv_default_T(2048) == 16 && kv_default_T(4096) == 16 && kv_default_T(16384) == 32 &&
              kv_default_T(1) == 1,
          "default T");
    check(cache_spec_parse(&spec, "bmc:grow=now,r=2", &err) == 0 && spec.r == 2 && spec.grow_now &&
              cache_spec_parse(&spec, "bmc:T=2,grow=ahead", &err) == 0 && spec.T == 2 &&
              !spec.grow_now && cache_spec_parse(&spec, "reserve:grow=now", &err) == 0 && spec.grow_now,
          "grow=");
    struct kv *kv = open_cache("bmc:T=3", 100, 1, DTYPE_F32);
    check(kv->setup.r == 34 && kv->setup.T == 3, "T=3 of 100 rows: r %zu, T %zu", kv->setup.r,
          kv->setup.T);
    kv_close(kv);
    kv = open_cache("bmc:T=500", 100, 1, DTYPE_F32);
    check(kv->setup.r == 1 && kv->setup.T == 100, "T=500 of 100 rows: r %zu, T %zu", kv->setup.r,
          kv->setup.T);
    kv_close(kv);
    const struct kv_shape absurd = cache_shape(LAYERS, KV_HEADS, D, SIZE_MAX / 4, DTYPE_F32);
    check(cache_spec_parse(&spec, "upfront", &err) == 0 && kv_open(&kv, &spec, &absurd, 1, &err) < 0,
          "an absurd cache was opened");
    const struct kv_shape large = cache_shape(LAYERS, KV_HEADS, D, (size_t)1 << 40, DTYPE_F32);
    check(kv_open(&kv, &spec, &large, 1, &err) == 0 && kv_ensure(kv, 0, 1, &err) < 0 &&
              kv->stats.resident_bytes == 0,
          "a cache of 2^40 rows was allocated");
    kv_close(kv);
}

/* ---- short memory ---- */

static atomic_int allocations_left;

static struct device_addr alloc_scarce(enum vm_alloc how, size_t bytes)
{
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? cpu_memory.alloc(how, bytes)
                                                      : (struct device_addr){0};
}

/* A growth event replaces blocks one after the other: whichever of them cannot be allocated, the sequence keeps its
 * rows, and can grow later. */
static void test_failed_growth(void)
{
    enum { ROWS = 16, BLOCKS = 2 * LAYERS };
    const struct kv_shape shape = kv_shape_uniform(
        LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, 4 * ROWS, DTYPE_F32);
    struct backend_memory scarce = cpu_memory;
    size_t order[ROWS + 1];
    v_in_k = false;
    scarce.alloc = alloc_scarce;
    for (size_t i = 0; i <= ROWS; i++)
        order[i] = i;
    threads_set(1);
    for (int fail = 0; fail < BLOCKS; fail++) {
        struct kv_spec spec;
        struct err err;
        struct kv *kv = NULL;
        check(kv_spec_parse(&spec, "bmc:r=16,grow=now", &err) == 0, "%s", err.text);
        spec.memory = &scarce;
        spec.lockstep = true; /* of two sequences: the fewest blocks at a time */
        allocations_left = 2 * BLOCKS;
        check(kv_open(&kv, &spec, &shape, 2, &err) == 0 && step(kv, 0, 0, ROWS), "no room");
        kv_commit(kv, 0, ROWS);
        allocations_left = fail;
        check(!step(kv, 0, ROWS, 1) && rows_are(kv, 0, order, ROWS),
              "rows differ after block %d of %d could not grow", fail, BLOCKS);
        allocations_left = 2 * BLOCKS;
        check(step(kv, 0, ROWS, 1) && rows_are(kv, 0, order, ROWS + 1),
              "rows differ once block %d of %d has grown", fail, BLOCKS);
        kv_close(kv);
    }
    threads_set(2);
}

/* ---- beams ---- */

/* Five beams of different lengths are reordered; only second children are copied. */
static void test_reorder(const char *spec)
{
    enum { N = 40, BEAMS = 5 };
    static const size_t parents[][BEAMS] = {{2, 2, 0, 2, 4}, {1, 0, 3, 3, 3}, {0, 1, 2, 3, 4}};
    static const size_t copies[] = {2, 2, 0}; /* second children, by hand */
    struct err err;
    struct kv *kv = open_cache(spec, N, BEAMS, DTYPE_F32);
    size_t seq[BEAMS], rows[BEAMS], order[BEAMS][N];
    for (size_t i = 0; i < BEAMS; i++) {
        seq[i] = i;
        rows[i] = 3 + 7 * i;
        check(step(kv, i, 100 * i, rows[i]), "%s: no room", spec);
        kv_commit(kv, i, rows[i]);
        for (size_t n = 0; n < N; n++)
            order[i][n] = 100 * i + n;
    }
    for (size_t round = 0; round < ARRAY_LEN(parents); round++) {
        size_t was[BEAMS], new_rows[BEAMS], new_order[BEAMS][N], moved = 0;
        memcpy(was, seq, sizeof was);
        check(kv_reorder(kv, seq, parents[round], BEAMS, &err) == 0, "%s: %s", spec, err.text);
        for (size_t i = 0; i < BEAMS; i++) {
            const size_t parent = parents[round][i];
            moved += seq[i] != was[parent];
            new_rows[i] = rows[parent];
            memcpy(new_order[i], order[parent], sizeof new_order[i]);
            check(kv_seq_info(kv, seq[i]).n == rows[parent] &&
                      rows_are(kv, seq[i], order[parent], rows[parent]),
                  "%s: round %zu: beam %zu is not what beam %zu was", spec, round, i, parent);
        }
        check(moved == copies[round], "%s: round %zu: %zu copies, %zu wanted", spec, round, moved,
              copies[round]);
        memcpy(rows, new_rows, sizeof rows);
        memcpy(order, new_order, sizeof order);
    }
    kv_close(kv);
}

/* ---- guarantees of views ---- */

/* A correct view of two spans, and one mistake each. */
static void test_contract(void)
{
    enum { ROW = 32, MISTAKES = 9 };
    static char memory[64 * ROW];
    const struct device_addr at = cpu_addr(memory);
    for (int mistake = 0; mistake < MISTAKES; mistake++) {
        struct kv_span span[2] = {
            {at, at, {32 * ROW, 32 * ROW}, {ROW, ROW}, 0, 32, 32, NULL},
            {at, at, {32 * ROW, 32 * ROW}, {ROW, ROW}, 32, 32, 8, NULL},
        };
        struct kv_view view = {.n_spans = 2, .span = span};
        const struct kv_sizes sizes = {.kv_heads = 1, .head_dim = ROW / sizeof(float)};
        size_t valid = 40;
        switch (mistake) {
        case 1: span[1].first = 48; break;                                /* a gap */
        case 2: span[0].rows = span[0].valid = span[1].first = 24; break; /* within a tile */
        case 3: span[0].valid = 31; break;                                /* padding in the middle */
        case 4: span[1].valid = 33; break;                                /* more tokens than rows */
        case 5: span[0].row_stride[KV_K] = ROW / 2; break;                /* rows overlap */
        case 6: span[1].v = cpu_addr(NULL); break;                        /* no memory */
        case 7: valid = 41; break;                                        /* a token is missing */
        case 8: span[1].row_stride[KV_V] = ROW / 2; break;                /* rows of V overlap */
        default: break;
        }
        check((kv_view_problem(&view, &sizes, valid) != NULL) == (mistake > 0), "view %d: %s", mistake,
              kv_view_problem(&view, &sizes, valid) ? kv_view_problem(&view, &sizes, valid) : "passes");
    }
}

/* A policy with wrong views: spans begin one tile too late. */
static int late_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                     struct kv_view *view, struct err *err)
{
    const int rc = kv_policies[0]->view(kv, seq, layer, head, heads, valid, view, err);
    view->inline_span[0].first += TILE_ROWS;
    return rc;
}

static void test_wrong_policy(void)
{
    struct err err;
    struct kv_view view;
    struct kv_policy late = *kv_policies[0];
    struct kv *kv = open_cache("bmc:r=16", 64, 1, DTYPE_F32);
    late.view = late_view;
    check(step(kv, 0, 0, 5), "no room");
    check(late.view(kv, 0, 0, 0, 1, 5, &view, &err) == 0 &&
              kv_view_problem(&view, kv_layer_sizes(kv, 0), 5),
          "a wrong policy's view passes");
    kv_close(kv);
}

/* ---- attention over the views: slopes, and scores of sinks, of four heads at most ---- */

static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sinks[] = {-2, 3.5f, 1, 0};

static const struct softcap_alibi {
    size_t window, chunk;
    float softcap;
    const float *slopes, *sinks;
} softcap_alibis[] = {{0, 0, 0, NULL, NULL},       {1, 0, 0, NULL, NULL},   {20, 0, 0, NULL, NULL},
                      {33, 0, 0.3f, NULL, NULL},   {0, 0, 0, slopes, NULL}, {20, 20, 0, NULL, sinks},
                      {0, 0, 0.3f, slopes, sinks}, {33, 33, 0, NULL, NULL}};

/* Position of pending row t for query row i, relative to the first: the pending rows before it that
 * the query sees. */
static size_t step_position(const bool *sees_i, size_t t)
{
    size_t at = 0;
    for (size_t j = 0; j < t; j++)
        at += sees_i[j];
    return at;
}

/* Largest difference of `out` from attention computed by a double loop; `sees`: the pending KV
 * entries that each query sees. */
static double attention_error(struct kv *kv, const struct attn_query *query, const float *q,
                              const float *out, const bool *sees,
                              const struct softcap_alibi *softcap_alibi)
{
    const size_t n = kv->seq[0].n, all = n + query->rows, d_v = cache_v_width(D);
    double worst = 0, *p = malloc(all * sizeof *p);
    for (size_t i = 0; i < query->rows; i++)
        for (size_t h = 0; h < HEADS; h++) {
            const size_t kv_h = h / (HEADS / KV_HEADS);
            const bool *sees_i = sees + i * query->rows;
            const size_t own = n + step_position(sees_i, i);
            double sum = 0, max = -INFINITY;
            for (size_t t = 0; t < all; t++) {
                p[t] = -INFINITY;
                if (t >= n && !sees_i[t - n])
                    continue;
                p[t] = 0;
                for (size_t j = 0; j < D; j++)
                    p[t] += q[(i * HEADS + h) * D + j] * (double)value(1, t, kv_h * D + j, false);
                p[t] /= sqrt(D);
                const size_t at = t < n ? t : n + step_position(sees_i, t - n);
                if (softcap_alibi->softcap > 0)
                    p[t] = softcap_alibi->softcap * tanh(p[t] / softcap_alibi->softcap);
                if (softcap_alibi->slopes)
                    p[t] -= softcap_alibi->slopes[h] * (double)(own - at);
                const size_t window = softcap_alibi->window, chunk = softcap_alibi->chunk;
                if ((window && own - at >= window) || (chunk && own / chunk != at / chunk)) {
                    p[t] = -INFINITY;
                    continue;
                }
                max = fmax(max, p[t]);
            }
            for (size_t t = 0; t < all; t++)
                sum += p[t] = exp(p[t] - max);
            sum += softcap_alibi->sinks ? exp(softcap_alibi->sinks[h] - max) : 0;
            for (size_t j = 0; j < d_v; j++) {
                double want = 0;
                for (size_t t = 0; t < all; t++)
                    if (p[t] != 0)
                        want += p[t] / sum * (double)value(1, t, kv_h * D + j, true);
                const double error = fabs(want - out[(i * HEADS + h) * d_v + j]);
                worst = error <= worst ? worst : error;
            }
        }
    free(p);
    return worst;
}

static void test_attention(const char *spec, enum dtype type, const size_t size[2], bool tree,
                           const struct softcap_alibi *a)
{
    enum { N = 160 };
    const size_t n = size[0], rows = size[1];
    struct err err;
    struct attn *attn = NULL;
    struct kv *kv = open_cache(spec, N, 1, type);
    const struct kernels *kernels = kernels_select(NULL, &err);
    float *q = malloc(rows * HEADS * D * sizeof *q), *out = malloc(rows * HEADS * D * sizeof *out);
    bool *sees = calloc(rows * rows, sizeof *sees);
    uint32_t *ancestors = malloc(rows * rows * sizeof *ancestors);
    size_t *ancestors_at = malloc((rows + 1) * sizeof *ancestors_at);
    size_t listed = 0;
    for (size_t i = 0; i < rows * HEADS * D; i++)
        q[i] = (float)((i * 37 + 11) % 101) / 4000 - 0.0125f;
    for (size_t i = 0; i < rows; i++) {
        /* In a tree the parent of node i is (i - 1) / 2; in a chain a query sees all before it. */
        for (size_t at = i;; at = tree ? (at - 1) / 2 : at - 1) {
            sees[i * rows + at] = true;
            if (at == 0)
                break;
        }
        ancestors_at[i] = listed;
        for (size_t j = 0; j <= i; j++)
            if (sees[i * rows + j])
                ancestors[listed++] = (uint32_t)j;
    }
    ancestors_at[rows] = listed;
    for (size_t at = 0; at < n; at++) {
        check(step(kv, 0, at, 1), "no room");
        kv_commit(kv, 0, 1);
    }
    check(step(kv, 0, n, rows), "no room");
    struct attn_query query = {.seq = 0, .rows = rows};
    if (tree)
        query.ancestors = ancestors, query.ancestors_at = ancestors_at;
    const struct attn_step attn_step = {kv, kernels, &query, 1, NULL};
    const struct attn_shape shape = {.heads = HEADS,
                                     .kv_heads = KV_HEADS,
                                     .head_dim = D,
                                     .v_dim = cache_v_dim(D),
                                     .softcap = a->softcap,
                                     .slopes = a->slopes};
    const struct attn_limits limits = {.positions = N, .step_rows = rows, .queries = 1};
    const struct attn_layer layer = {
        .index = 1, .window = a->window, .chunk = a->chunk, .sinks = a->sinks};
    for (size_t b = 0; attn_backends[b]; b++) {
        if (!check(attn_open(&attn, attn_backends[b], &shape, 1, &limits, &err) == 0, "%s", err.text))
            continue;
        check(attn_begin(attn, &attn_step, &err) == 0 &&
                  attn_run(attn, &attn_step, &layer, q, out, &err) == 0,
              "attn: %s", err.text);
        const double error = attention_error(kv, &query, q, out, sees, a);
        check(error < 1e-3, "%s over %s %s, %zu + %zu rows%s, case %td: off by %g",
              attn_backends[b]->name, spec, dtype_name(type), n, rows, tree ? ", a tree" : "",
              a - softcap_alibis, error);
        attn_close(attn);
    }
    kv_close(kv);
    free(q), free(out), free(sees), free(ancestors), free(ancestors_at);
}

/* No policy is missing in the lists above. */
static void test_all_listed(void)
{
    for (size_t p = 0; kv_policies[p]; p++) {
        const size_t len = strlen(kv_policies[p]->name);
        bool listed = false;
        for (size_t i = 0; i < ARRAY_LEN(specs); i++)
            listed = listed || (strncmp(specs[i], kv_policies[p]->name, len) == 0 &&
                                (specs[i][len] == 0 || specs[i][len] == ':'));
        for (size_t i = 0; i < ARRAY_LEN(rolling); i++)
            listed = listed || strncmp(rolling[i], kv_policies[p]->name, len) == 0;
        check(listed, "policy %s is not tested here", kv_policies[p]->name);
    }
}

static void test_all(void)
{
    size_t turn = seed; /* a third of the cases of attention have every pair of policy, rows and kind */
    for (size_t i = 0; i < ARRAY_LEN(rolling); i++) {
        test_accept(rolling[i]);
        test_reorder(rolling[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        test_rows(specs[i], DTYPE_F32);
        test_rows(specs[i], DTYPE_BF16);
        test_accept(specs[i]);
        test_reorder(specs[i]);
        for (int kind = 0; kind < 4; kind++)
            test_attach(specs[i], kind & 1 ? DTYPE_BF16 : DTYPE_F32, kind & 2 ? DTYPE_BF16 : DTYPE_F32);
        static const size_t sizes[][2] = {{0, 1},  {0, 70},  {15, 1},  {16, 1},
                                          {17, 3}, {63, 65}, {100, 26}};
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            for (size_t kind = 0; kind < 4 * ARRAY_LEN(softcap_alibis); kind += kind < 4 ? 1 : 3)
                if (turn++ % check_every(3) == 0)
                    test_attention(specs[i], kind & 1 ? DTYPE_BF16 : DTYPE_F32, sizes[s], kind & 2,
                                   &softcap_alibis[kind / 4]);
    }
    /* N (T - 1) / 2 rows copied and N (r - 1) / 2 padded where r divides N; at the ends N (N - 1) / 2 */
    test_statistics("bmc:T=8,grow=now", 128, 8, 128 * 7 / 2, 128 * 15 / 2);
    test_statistics("bmc:r=32,grow=now", 128, 4, 128 * 3 / 2, 128 * 31 / 2);
    test_statistics("iterative", 128, 128, 128 * 127 / 2, 0);
    test_statistics("upfront", 128, 1, 0, 128 * 127 / 2);
    /* r = 34 does not divide 100: growths at 0, 34, 68; padding 34*33/2 twice, then 32*31/2. */
    test_statistics("bmc:T=3,grow=now", 100, 3, 34 + 68, 34 * 33 + 32 * 31 / 2);
}

int main(void)
{
    kernels_setup();
    threads_set(2);
    seed = (unsigned)check_seed(1);
    test_all_listed();
    for (int i = 0; i < 2; i++)
        v_in_k = i, test_all();
    test_specs();
    test_failed_growth();
    test_contract();
    test_wrong_policy();
    return check_result();
}
