/* Streaming heads: attention compared with plain sums over the rows that they see; released memory;
 * retrieval scores. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_memory.h"
#include "attn/retrieval_score.h"
#include "prof/retrieval_text.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "kv/offload/offload_heads.h"

enum { LAYERS = 2, KV_HEADS = 3, GROUP = 2, HEADS = KV_HEADS * GROUP, D = 32, WIDTH = KV_HEADS * D };
enum { N = 1100, SINK = 20, RECENT = 100, FAR = 1, QUERIES = 40 };

static float k[N * WIDTH], v[N * WIDTH], q[QUERIES * HEADS * D];

static float value(size_t i) { return cosf((float)i * 0.37f) + 0.5f * sinf((float)i * 0.011f); }

/* Head FAR of each layer is a retrieval head. */
static struct kv *open_cache(const char *text)
{
    static const char list[] = "# a list\nsink 20\nrecent 100\n0 1\n1 1\n";
    struct kv_spec spec;
    struct kv_streaming sparse;
    struct err err;
    struct kv *kv = NULL;
    const struct kv_shape shape =
        kv_shape_uniform(LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, N, DTYPE_F32);
    if (kv_streaming_parse(&sparse, list, sizeof list - 1, "list", LAYERS, KV_HEADS, &err) < 0 ||
        kv_spec_parse(&spec, text, &err) < 0) {
        check(false, "%s", err.text);
        exit(1);
    }
    spec.memory = &cpu_memory;
    spec.offload.streaming = &sparse;
    if (!check(kv_open(&kv, &spec, &shape, 2, &err) == 0, "%s: %s", text, err.text))
        exit(1);
    kv_streaming_release(&sparse);
    return kv;
}

/* Appends `rows` pending KV entries. */
static void step(struct kv *kv, size_t rows)
{
    struct err err;
    const size_t n = kv_seq_info(kv, 0).n;
    check(kv_ensure(kv, 0, rows, &err) == 0, "%zu + %zu rows: %s", n, rows, err.text);
    for (size_t l = 0; l < LAYERS; l++)
        kv_append(kv, 0, l, cpu_addr(k + n * WIDTH), cpu_addr(v + n * WIDTH), WIDTH, NULL);
}

static void grow_to(struct kv *kv, size_t rows)
{
    for (size_t n; (n = kv_seq_info(kv, 0).n) < rows;) {
        const size_t more = size_min(50, rows - n);
        step(kv, more);
        kv_commit(kv, 0, more);
    }
}

/* ---- attention ---- */

static bool sees(size_t head, size_t own, size_t at, size_t window)
{
    const bool near = at + RECENT > own || at < SINK || head / GROUP == FAR;
    return at <= own && near && (!window || at + window > own);
}

static void attend_plainly(size_t head, const float *query, size_t own, size_t window, double *out)
{
    double sum = 0;
    memset(out, 0, D * sizeof *out);
    for (size_t at = 0; at <= own; at++) {
        double score = 0;
        for (size_t j = 0; j < D; j++)
            score += (double)query[j] * (double)k[at * WIDTH + head / GROUP * D + j];
        const double weight = sees(head, own, at, window) ? exp(score / sqrt(D)) : 0;
        sum += weight;
        for (size_t j = 0; j < D; j++)
            out[j] += weight * (double)v[at * WIDTH + head / GROUP * D + j];
    }
    for (size_t j = 0; j < D; j++)
        out[j] /= sum;
}

static void run_attention(struct kv *kv, const struct attn_backend *backend, size_t rows, size_t window,
                          struct retrieval_score *score, float *out)
{
    struct err err;
    struct attn *attn;
    const struct attn_query query = {.seq = 0, .rows = rows};
    const struct attn_step attn_step = {kv, kernels_select(NULL, &err), &query, 1, NULL};
    const struct attn_shape shape = {.heads = HEADS, .kv_heads = KV_HEADS, .head_dim = D};
    const struct attn_limits limits = {.positions = N, .step_rows = rows, .queries = 1};
    const struct attn_layer layer = {.index = 1, .window = window};
    if (!check(attn_open(&attn, backend, &shape, 1, &limits, &err) == 0, "%s", err.text))
        exit(1);
    attn->retrieval = score;
    check(attn_begin(attn, &attn_step, &err) == 0 &&
              attn_run(attn, &attn_step, &layer, q, out, &err) == 0,
          "%s", err.text);
    attn_close(attn);
}

static void test_attention(const char *text, const struct attn_backend *backend, size_t n, size_t rows,
                           size_t window)
{
    static float out[QUERIES * HEADS * D], alone[HEADS * D];
    struct kv *kv = open_cache(text);
    double want[D], worst = 0;
    grow_to(kv, n);
    step(kv, rows);
    threads_set(3);
    run_attention(kv, backend, rows, window, NULL, out);
    for (size_t i = 0; i < rows; i += size_max(1, rows - 1))
        for (size_t head = 0; head < HEADS; head++) {
            attend_plainly(head, q + (i * HEADS + head) * D, n + i, window, want);
            for (size_t j = 0; j < D; j++)
                worst = fmax(worst, fabs(want[j] - (double)out[(i * HEADS + head) * D + j]));
        }
    check(worst < 2e-5, "%s, %s, %zu + %zu rows, window %zu: off by %g", backend->name, text, n, rows,
          window, worst);
    kv_commit(kv, 0, 0);
    step(kv, 1);
    threads_set(1);
    run_attention(kv, backend, 1, window, NULL, alone);
    check(backend != attn_backends[0] || memcmp(out, alone, sizeof alone) == 0,
          "%s, %zu + %zu rows, window %zu: a query is another one among many", text, n, rows, window);
    kv_close(kv);
}

/* ---- memory ---- */

static size_t zeros(struct kv *kv, size_t seq, size_t head, size_t from, size_t to)
{
    struct kv_view view;
    struct err err;
    size_t n = 0;
    if (!check(kv_view(kv, seq, 1, head, 1, &view, &err) == 0, "%s", err.text))
        return 0;
    const float *rows = cpu_at(view.span[0].k);
    for (size_t i = from; i < to; i++)
        n += rows[i * D] == 0 && rows[i * D + 1] == 0;
    return n;
}

static void test_kept(void)
{
    enum { BLOCK = OFFLOAD_BLOCK / (D * sizeof(float)), BEHIND = N - 1 - RECENT - BLOCK };
    struct kv *kv = open_cache("headwise");
    struct err err;
    grow_to(kv, N - 1);
    const size_t whole = kv_stats(kv).resident_bytes;
    step(kv, 1);
    kv_commit(kv, 0, 1);
    check(zeros(kv, 0, 0, BLOCK, BEHIND) == BEHIND - BLOCK, "rows that no query sees are kept");
    check(!zeros(kv, 0, 0, 0, SINK) && !zeros(kv, 0, 0, N - RECENT, N) && !zeros(kv, 0, FAR, 0, N),
          "rows that are seen are not there");
    const size_t rows = 3 * BLOCK + RECENT + 50,
                 all = round_up(N, BLOCK) * LAYERS * 2 * D * sizeof(float);
    check(whole >= all && whole <= all + LAYERS * 2 * 2 * rows * D * sizeof(float), "%zu bytes", whole);
    check(!kv_is_untrimmed(kv, 0) && kv_fork(kv, 1, 0, N, &err) == 0, "no fork");
    check(zeros(kv, 1, 0, BLOCK, BEHIND) == BEHIND - BLOCK && !zeros(kv, 1, 0, 0, SINK) &&
              !zeros(kv, 1, 2, N - RECENT, N) && !zeros(kv, 1, FAR, 0, N),
          "a fork has other rows");
    kv_truncate(kv, 0, 0);
    kv_truncate(kv, 1, 0);
    check(kv_stats(kv).resident_bytes == 0, "%zu bytes are left", kv_stats(kv).resident_bytes);
    grow_to(kv, SINK + RECENT - 1);
    check(kv_is_untrimmed(kv, 0) && !zeros(kv, 0, 0, 0, SINK + RECENT - 1),
          "a new sequence lacks rows");
    kv_close(kv);
}

static void test_arithmetic(void)
{
    bool is[2 * 4] = {true, false, false, true, true, true, false, true};
    const struct kv_streaming sparse = {2, 4, 4, 256, 5, is};
    const struct kv_shape shape =
        kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 4, .head_dim = D}, N, DTYPE_F32);
    struct offload_memory m = {.ram = 900,
                               .shape = &shape,
                               .group = 2,
                               .size = {{.head_bytes = 200, .tail_bytes = 10}},
                               .streaming = &sparse,
                               .streaming_bytes = 100};
    struct offload_plan plan;
    check(kv_retrieval_widest(&sparse, 1) == 1 && kv_retrieval_widest(&sparse, 2) == 1 &&
              kv_retrieval_widest(&sparse, 3) == 2,
          "heads of a group");
    check(offload_plan_make(&plan, &m, NULL) && !plan.group && plan.bytes == 3 * 200 + 100,
          "all stay: %zu", plan.bytes);
    m.ram = 600;
    check(offload_plan_make(&plan, &m, NULL) && plan.group == 2 && plan.bytes == 2 * 200 + 3 * 10 + 100,
          "%zu bytes", plan.bytes);
}

/* ---- retrieval scores ---- */

/* With zero keys all rows that a query sees have the same weight. */
static void test_retrieval_score(void)
{
    static float out[QUERIES * HEADS * D];
    double weight[LAYERS * HEADS] = {0};
    const struct position_range range[] = {{4, 9}, {0, 0}, {290, 400}, {0, 1}, {299, 300}};
    struct retrieval_score score = {.from = 295, .range = range, .weight = weight};
    struct kv_spec spec;
    struct kv *kv = NULL;
    struct err err;
    const struct kv_shape shape =
        kv_shape_uniform(LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, N, DTYPE_F32);
    if (!check(kv_spec_parse(&spec, "paged:16", &err) == 0 && (spec.memory = &cpu_memory) &&
                   kv_open(&kv, &spec, &shape, 1, &err) == 0,
               "%s", err.text))
        return;
    memset(k, 0, sizeof k);
    grow_to(kv, 290);
    step(kv, 10);
    run_attention(kv, attn_backends[0], 10, 0, &score, out);
    const double want = 5 / 296. + 8 / 298. + 1 / 299. + 1 / 300.;
    for (size_t head = 0; head < HEADS; head++)
        check(near(weight[HEADS + head], want, 1e-9) && weight[head] == 0, "head %zu: %g, not %g", head,
              weight[HEADS + head], want);
    kv_close(kv);
}

/* Tokens 10 to 15 are repeated at positions 20 to 25: what follows the third of them is to be retrieved, unless it
 * differs, or sinks and window show it. */
static void test_repeats(void)
{
    enum { TOKENS = 26 };
    uint32_t id[TOKENS];
    struct position_range range[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        id[i] = i < 20 ? 100 + i : 90 + i;
    check(retrieval_text_repeats(range, id, TOKENS, 4, 5) == 3, "repeats");
    for (size_t i = 0; i < TOKENS; i++)
        check(i >= 22 && i < 25 ? range[i].first == i - 9 && range[i].end == i - 8
                                : range[i].first == range[i].end,
              "token %zu: [%zu, %zu)", i, range[i].first, range[i].end);
    check(retrieval_text_repeats(range, id, TOKENS, 15, 5) == 1, "sinks");
    check(retrieval_text_repeats(range, id, TOKENS, 4, 10) == 0, "window");
    id[24] = 1;
    check(retrieval_text_repeats(range, id, TOKENS, 4, 5) == 1, "another token");
}

int main(void)
{
    kernels_setup();
    for (size_t i = 0; i < N * WIDTH; i++) {
        k[i] = value(i);
        v[i] = value(i + 7) + 1;
    }
    for (size_t i = 0; i < QUERIES * HEADS * D; i++)
        q[i] = value(3 * i);
    for (size_t b = 0; attn_backends[b]; b++)
        for (size_t window = 0; window <= 200; window += 200)
            for (size_t n = 80; n < N - QUERIES; n += 970) {
                test_attention("headwise", attn_backends[b], n, QUERIES, window);
                test_attention("headwise", attn_backends[b], n, 1, window);
            }
    test_attention("headwise", attn_backends[0], SINK + RECENT - 20, QUERIES, 0);
    test_kept();
    test_arithmetic();
    test_retrieval_score();
    test_repeats();
    return check_result();
}
