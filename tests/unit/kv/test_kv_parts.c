/* Minimal policies for two features: sequences that share a prefix, which attention reads once, and
 * caches with only some heads in memory. Both must give the bits of a plain cache. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "cpu/cpu_memory.h"
#include "kv/kv_policy.h"
#include "kv/kv_rows.h"

enum {
    LAYERS = 2,
    KV_HEADS = 3,
    HEADS = 6,
    D = 24,
    WIDTH = KV_HEADS * D,
    SEQS = 4,
    N = 640,
    SHARED = 288, /* rows: more than a block of fused attention */
    R = 64,       /* rows per growth event */
    AT_ONCE = 2
};

/* The policy that the others extend: bmc, one span per head. */
static const struct kv_policy *plain;

/* ---- sequences that share the first rows of sequence 0 ---- */

/* A view whose first span is that of sequence 0; a sequence's own copies of those rows are NaN. */
static int view_shared(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                       struct kv_view *view, struct err *err)
{
    struct kv_view first;
    if (plain->view(kv, 0, layer, head, heads, valid, &first, err) < 0 ||
        plain->view(kv, seq, layer, head, heads, valid, view, err) < 0)
        return -1;
    struct kv_span own = view->inline_span[0];
    if (valid <= SHARED)
        return 0;
    view->inline_span[0] = first.inline_span[0];
    view->inline_span[0].rows = view->inline_span[0].valid = SHARED;
    own.first = SHARED;
    own.k = addr_add(own.k, SHARED * own.row_stride[KV_K]);
    own.v = addr_add(own.v, SHARED * own.row_stride[KV_K]);
    own.rows -= SHARED;
    own.valid -= SHARED;
    view->inline_span[1] = own;
    view->n_spans = 2;
    return 0;
}

/* ---- two ranges of heads in memory ---- */

struct test_range {
    size_t layer, head, heads; /* heads 0: empty */
    char *rows;                /* [K or V][heads][N][D] */
};

static struct {
    struct test_range range[2]; /* the last one prefetched is the first */
    size_t fetched, not_prefetched;
} resident[SEQS];

static size_t range_bytes(const struct kv *kv)
{
    return 2 * (size_t)AT_ONCE * N * kv_row_bytes(kv, 0, KV_K);
}

static char *range_head(const struct kv *kv, const struct test_range *range, size_t v, size_t head)
{
    return range->rows + (v * AT_ONCE + head - range->head) * N * kv_row_bytes(kv, 0, KV_K);
}

/* Copies a range of heads into memory as prefetch does; the evicted range becomes NaN. */
static void fetch_rows(struct kv *kv, size_t seq, const struct test_range *range)
{
    struct kv_view view;
    struct err err;
    const size_t rows = kv->seq[seq].n + kv->seq[seq].pending;
    memset(range->rows, 0xff, range_bytes(kv));
    for (size_t h = range->head; h < range->head + range->heads; h++) {
        check(plain->view(kv, seq, range->layer, h, 1, rows, &view, &err) == 0, "%s", err.text);
        const size_t bytes = round_up(view.inline_span[0].rows, TILE_ROWS) * kv_row_bytes(kv, 0, KV_K);
        memcpy(range_head(kv, range, 0, h), cpu_at(view.inline_span[0].k), bytes);
        memcpy(range_head(kv, range, 1, h), cpu_at(view.inline_span[0].v), bytes);
    }
}

static int open_parts(struct kv *kv, struct err *err)
{
    kv->offload.heads_at_once = AT_ONCE;
    memset(resident, 0, sizeof resident);
    for (size_t s = 0; s < SEQS; s++)
        for (size_t i = 0; i < 2; i++)
            resident[s].range[i].rows = malloc(range_bytes(kv));
    return plain->open(kv, err);
}

static void close_parts(struct kv *kv)
{
    (void)kv;
    for (size_t s = 0; s < SEQS; s++)
        for (size_t i = 0; i < 2; i++)
            free(resident[s].range[i].rows);
}

static void prefetch_parts(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    struct test_range *now = &resident[seq].range[0], *before = now + 1, kept = *now;
    check(head % AT_ONCE == 0 && heads == size_min(AT_ONCE, KV_HEADS - head), "heads %zu + %zu", head,
          heads);
    if (now->heads && now->layer == layer && now->head == head)
        return;
    *now = *before;
    *before = kept;
    if (now->heads && now->layer == layer && now->head == head)
        return;
    *now = (struct test_range){layer, head, heads, now->rows};
    resident[seq].fetched++;
    fetch_rows(kv, seq, now);
}

static void append_parts(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                         struct device_addr k, struct device_addr v, size_t stride,
                         const struct kv_queries *queries)
{
    plain->append(kv, seq, layer, first, rows, k, v, stride, queries);
    for (size_t i = 0; i < 2; i++)
        if (resident[seq].range[i].heads && resident[seq].range[i].layer == layer)
            fetch_rows(kv, seq, &resident[seq].range[i]);
}

static int view_parts(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                      struct kv_view *view, struct err *err)
{
    if (plain->view(kv, seq, layer, head, heads, valid, view, err) < 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        const struct test_range *range = &resident[seq].range[i];
        if (!range->heads || range->layer != layer || range->head > head ||
            head + heads > range->head + range->heads)
            continue;
        view->inline_span[0].k = cpu_addr(range_head(kv, range, 0, head));
        view->inline_span[0].v = cpu_addr(range_head(kv, range, 1, head));
        view->inline_span[0].head_stride[KV_K] = view->inline_span[0].head_stride[KV_V] =
            N * kv_row_bytes(kv, 0, KV_K);
        return 0;
    }
    resident[seq].not_prefetched++;
    return err_set(err, "heads %zu + %zu of layer %zu were not prefetched", head, heads, layer);
}

/* ---- comparison with plain caches ---- */

static float random_value(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (float)(*state % 4001) / 2000 - 1;
}

static struct kv *open_cache(const struct kv_policy *policy, enum dtype type)
{
    struct kv_spec spec;
    struct err err;
    struct kv *kv = NULL;
    const struct kv_shape shape =
        kv_shape_uniform(LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, N, type);
    if (kv_spec_parse(&spec, "bmc:r=64" /* R */, &err) == 0) {
        spec.memory = &cpu_memory;
        spec.policy = policy;
        if (kv_open(&kv, &spec, &shape, SEQS, &err) == 0)
            return kv;
    }
    printf("not ok - %s\n", err.text);
    exit(1);
}

/* Appends `rows` rows; those of the first `same` positions are equal in all sequences. */
static void append(struct kv *kv, size_t seq, size_t rows, size_t same)
{
    struct err err;
    float *k = malloc(2 * rows * WIDTH * sizeof *k), *v = k + rows * WIDTH;
    const size_t n = kv->seq[seq].n;
    check(kv_ensure(kv, seq, rows, &err) == 0, "%s", err.text);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < rows; i++) {
            uint64_t state = check_state((n + i) * 64 + layer * 8 + (n + i < same ? 0 : seq + 1));
            for (size_t j = 0; j < WIDTH; j++) {
                k[i * WIDTH + j] = random_value(&state);
                v[i * WIDTH + j] = random_value(&state);
            }
        }
        kv_append(kv, seq, layer, cpu_addr(k), cpu_addr(v), WIDTH, NULL);
    }
    free(k);
}

/* Committed and pending rows of each sequence. */
static const struct shape {
    size_t n[SEQS], rows[SEQS];
} shapes[] = {
    {{300, 300, 300, 300}, {1, 1, 1, 1}},
    {{417, 289, 520, 320}, {1, 1, 1, 1}}, /* unsorted lengths */
    {{300, 40, 310, 300}, {1, 1, 9, 1}},  /* one too short to share, one with several queries */
    {{0, 0, 0, 0}, {90, 1, 3, 17}},
};

static void fill(struct kv *kv, const struct shape *shape)
{
    for (size_t s = 0; s < SEQS; s++) {
        if (shape->n[s])
            append(kv, s, shape->n[s], SHARED);
        kv_commit(kv, s, shape->n[s]);
        append(kv, s, shape->rows[s], 0);
    }
}

/* Overwrites a sequence's own copies of shared rows with NaN. */
static void poison_copies(struct kv *kv)
{
    struct kv_view view;
    struct err err;
    for (size_t s = 1; s < SEQS; s++)
        for (size_t layer = 0; layer < LAYERS && kv->seq[s].n > SHARED; layer++)
            for (size_t h = 0; h < KV_HEADS; h++) {
                check(plain->view(kv, s, layer, h, 1, kv->seq[s].n, &view, &err) == 0, "%s", err.text);
                memset(cpu_at(view.inline_span[0].k), 0xff, SHARED * kv_row_bytes(kv, 0, KV_K));
                memset(cpu_at(view.inline_span[0].v), 0xff, SHARED * kv_row_bytes(kv, 0, KV_K));
            }
}

/* The kernel, and the tiles that it has read. */
static void (*attend)(const struct attend *);
static atomic_size_t visited;

static void attend_counting(const struct attend *a)
{
    visited += a->tiles;
    attend(a);
}

static const float slopes[HEADS] = {.5f, .25f, .125f, .5f, .25f, .125f};
static const struct softcap_alibi {
    size_t window;
    const float *slopes, *sinks;
} softcap_alibis[] = {{0, NULL, NULL}, {290, NULL, NULL}, {0, slopes, NULL}, {290, NULL, slopes}};

enum { ROWS = 112 }; /* most queries of a step */

static size_t run_step(struct kv *kv, const struct kernels *kernels, const struct attn_backend *backend,
                       const struct shape *shape, const struct softcap_alibi *softcap_alibi, float *out)
{
    struct err err;
    struct attn *attn;
    struct attn_query query[SEQS];
    static float q[ROWS * HEADS * D];
    uint64_t state = check_state(7);
    size_t rows = 0;
    for (size_t i = 0; i < ARRAY_LEN(q); i++)
        q[i] = random_value(&state);
    for (size_t s = 0; s < SEQS; rows += shape->rows[s++])
        query[s] = (struct attn_query){.seq = s, .first = rows, .rows = shape->rows[s]};
    struct kernels counting = *kernels;
    attend = kernels->attend;
    counting.attend = attend_counting;
    const struct attn_shape attn_shape = {.heads = HEADS,
                                          .kv_heads = KV_HEADS,
                                          .head_dim = D,
                                          .slopes = softcap_alibi->slopes,
                                          .dequantize = false};
    const struct attn_limits limits = {.positions = N, .step_rows = ROWS, .queries = SEQS};
    const struct attn_step step = {kv, &counting, query, SEQS, NULL};
    visited = 0;
    if (!check(attn_open(&attn, backend, &attn_shape, 1, &limits, &err) == 0, "%s", err.text))
        return 0;
    check(attn_begin(attn, &step, &err) == 0, "%s", err.text);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const struct attn_layer at = {
            .index = layer, .window = softcap_alibi->window, .sinks = softcap_alibi->sinks};
        check(attn_run(attn, &step, &at, q, out + layer * rows * HEADS * D, &err) == 0, "%s", err.text);
    }
    attn_close(attn);
    return LAYERS * rows * HEADS * D;
}

/* Tiles read per head and layer, padding included: shared ones once per prefix group. */
static size_t tiles_of(const struct shape *shape, bool shares)
{
    enum { TASK_ROWS = 64 / (HEADS / KV_HEADS), COMMON = SHARED / QUANT_BLOCK * QUANT_BLOCK };
    size_t tiles = 0, grouped = 0;
    for (size_t s = 0; s < SEQS; s++) {
        const size_t all = round_up(shape->n[s] + shape->rows[s], R) / ATTEND_TILE;
        const bool joins = shares && shape->n[s] > SHARED && shape->rows[s] == 1;
        tiles += (all - (joins ? COMMON / ATTEND_TILE : 0)) * div_up(shape->rows[s], TASK_ROWS);
        grouped += joins;
    }
    return tiles + (grouped ? COMMON / ATTEND_TILE : 0);
}

/* Bitwise; eager attention sums two spans in another order. */
static bool same_results(const float *a, const float *b, size_t n, bool bits)
{
    bool near_all = true;
    for (size_t i = 0; i < n; i++)
        near_all = near_all && near(a[i], b[i], 1e-5);
    return bits ? memcmp(a, b, n * sizeof *a) == 0 : near_all;
}

static void test_parts(const struct kernels *kernels, const struct attn_backend *backend,
                       enum dtype type, const struct shape *shape,
                       const struct softcap_alibi *softcap_alibi)
{
    static float want[LAYERS * ROWS * HEADS * D], out[LAYERS * ROWS * HEADS * D];
    struct kv_policy sharing = *plain, parts = *plain;
    char how[128];
    snprintf(how, sizeof how, "%s %s %s, shape %zu, window %zu%s", kernels->isa, backend->name,
             dtype_name(type), (size_t)(shape - shapes), softcap_alibi->window,
             softcap_alibi->sinks    ? ", sinks"
             : softcap_alibi->slopes ? ", slopes"
                                     : "");
    const bool fused = strcmp(backend->name, "fused") == 0;
    /* oneDNN has one product for all heads of a tensor, which may add in another order than one per part */
    const bool same_sums = strcmp(backend->name, "onednn") != 0;
    sharing.view = view_shared;
    sharing.shares_prefix = true;
    parts.open = open_parts;
    parts.close = close_parts;
    parts.prefetch = prefetch_parts;
    parts.append = append_parts;
    parts.view = view_parts;

    struct kv *kv = open_cache(plain, type);
    fill(kv, shape);
    const size_t floats = run_step(kv, kernels, backend, shape, softcap_alibi, want);
    kv_close(kv);
    check(!fused || visited == LAYERS * KV_HEADS * tiles_of(shape, false), "%s: %zu tiles apart", how,
          (size_t)visited);

    kv = open_cache(&sharing, type);
    fill(kv, shape);
    poison_copies(kv);
    run_step(kv, kernels, backend, shape, softcap_alibi, out);
    check(same_results(out, want, floats, fused), "%s: shared rows give other results", how);
    check(!fused || visited == LAYERS * KV_HEADS * tiles_of(shape, true),
          "%s: %zu tiles where rows are shared, %zu wanted", how, (size_t)visited,
          LAYERS * KV_HEADS * tiles_of(shape, true));
    kv_close(kv);

    kv = open_cache(&parts, type);
    fill(kv, shape);
    run_step(kv, kernels, backend, shape, softcap_alibi, out);
    check(same_results(out, want, floats, same_sums), "%s: heads in parts give other results", how);
    for (size_t s = 0; s < SEQS; s++)
        check(resident[s].fetched == LAYERS * div_up(KV_HEADS, AT_ONCE) && !resident[s].not_prefetched,
              "%s: %zu ranges of heads were fetched, %zu views came without", how, resident[s].fetched,
              resident[s].not_prefetched);
    kv_close(kv);
}

/* Views without prefetch fail, and kv_read() prefetches. */
static void test_not_prefetched(void)
{
    struct kv_policy parts = *plain;
    struct kv_view view;
    struct err err;
    static float rows[N * D];
    parts.open = open_parts;
    parts.close = close_parts;
    parts.prefetch = prefetch_parts;
    parts.append = append_parts;
    parts.view = view_parts;
    struct kv *kv = open_cache(&parts, DTYPE_F32);
    append(kv, 0, 20, 0);
    kv_commit(kv, 0, 20);
    kv_prefetch(kv, 0, 1, 0, 2);
    check(kv_view(kv, 0, 1, 1, 1, &view, &err) == 0, "a prefetched head cannot be viewed");
    check(kv_view(kv, 0, 1, 2, 1, &view, &err) < 0 && kv_view(kv, 0, 0, 0, 1, &view, &err) < 0,
          "a head was viewed without prefetch");
    check(kv_read(kv, 0, 0, true, 2, rows, &err) == 0 && isfinite(rows[19 * D]), "rows read back");
    kv_close(kv);
}

/* Every kernel set with the fused backend, the first one with all backends. */
static void test_sets(void)
{
    for (size_t i = 0; kernel_sets[i]; i++)
        for (size_t b = 0; attn_backends[b] && kernel_sets[i]->usable() && (b == 0 || i == 0); b++)
            for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
                for (size_t c = 0; c < ARRAY_LEN(softcap_alibis); c++)
                    test_parts(kernel_sets[i], attn_backends[b], c ? DTYPE_BF16 : DTYPE_F32, &shapes[s],
                               &softcap_alibis[c]);
}

int main(void)
{
    kernels_setup();
    plain = kv_policies[0];
    test_not_prefetched();
    threads_set(1);
    test_sets();
    threads_set(2); /* more threads than tasks of a prefix group: they share its blocks */
    test_sets();
    return check_result();
}
