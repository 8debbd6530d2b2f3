/* Times attention over the layers of a cache with head-wise offload, and reading its entries alone.
 *
 *   headwise ROWS LAYERS KV THREADS STEPS [HEADS [QUERIES]]
 *
 * HEADS is a list of retrieval heads, the others are streaming heads; "-": none are streaming.
 * QUERIES is the number of query tokens: 1 (the default) is a decode step, more are a prefill chunk
 * at context depth ROWS. The shape is that of llama-3-8b. Prints a line of JSON: the shortest
 * times, bytes in memory as counted and as reported by the system, and bytes of the entries.
 * BMC_ISA selects a kernel set. */
#include <math.h>

#include "attn/attn.h"
#include "base/clock.h"
#include "base/file_head.h"
#include "base/mem.h"
#include "cpu/cpu_memory.h"
#include "base/threads.h"
#include "bench.h"
#include "kv/offload/kv_streaming.h"

enum { HEADS = 32, KV_HEADS = 8, D = 128, CHUNK = 512 };

struct setting {
    size_t rows, heads, steps, queries;
    struct kv_shape shape;
};

/* Fills the cache with copies of a random row, in chunks: times do not depend on values. */
static void fill(struct kv *kv, const struct setting *set, struct err *err)
{
    const size_t width = set->shape.sizes[0].kv_heads * set->shape.sizes[0].head_dim;
    float *row = mem_alloc(width, sizeof *row);
    for (size_t i = 0; i < width; i++)
        row[i] = (float)(i % 977) / 977 - .5f;
    for (size_t at = 0, n; at < set->rows; at += n) {
        n = size_min(CHUNK, set->rows - at);
        if (kv_ensure(kv, 0, n, err) < 0)
            die(err);
        for (size_t l = 0; l < set->shape.layers; l++)
            kv_append(kv, 0, l, cpu_addr(row), cpu_addr(row), 0, NULL);
        kv_commit(kv, 0, n);
    }
    free(row);
}

/* Times fetching every group of heads without computing attention. */
static double read_ms(struct kv *kv, const struct setting *set, struct err *err)
{
    const size_t group = kv_offload(kv).heads_at_once, end = set->shape.sizes[0].kv_heads;
    struct kv_view view;
    const double start = clock_ms();
    for (size_t l = 0; group && l < set->shape.layers; l++)
        for (size_t head = 0; head < end; head += group) {
            kv_prefetch(kv, 0, l, head, size_min(group, end - head));
            for (size_t i = head; i < size_min(head + group, end); i++) {
                if (kv_view(kv, 0, l, i, 1, &view, err) < 0)
                    die(err);
            }
        }
    return clock_ms() - start;
}

static double step_ms(struct kv *kv, struct attn *attn, const struct attn_step *step, const float *q,
                      float *out, struct err *err)
{
    const size_t rows = step->query->rows, before = kv_seq_info(kv, 0).n;
    const size_t width = kv_setup(kv)->shape.sizes[0].kv_heads * kv_setup(kv)->shape.sizes[0].head_dim;
    const double start = clock_ms();
    if (kv_ensure(kv, 0, rows, err) < 0)
        die(err);
    if (attn_begin(attn, step, err) < 0)
        die(err);
    for (size_t l = 0; l < kv_setup(kv)->shape.layers; l++) {
        const struct attn_layer layer = {.index = l};
        kv_append(kv, 0, l, cpu_addr(q), cpu_addr(q), width, NULL);
        if (attn_run(attn, step, &layer, q, out, err) < 0)
            die(err);
    }
    kv_commit(kv, 0, rows);
    const double ms = clock_ms() - start;
    /* Streaming heads have dropped entries, so they cannot go back: the cache grows with each step. */
    if (kv_is_untrimmed(kv, 0))
        kv_truncate(kv, 0, before);
    return ms;
}

/* Floating-point operations of Q K^T and P V in a step, over the rows that each query sees. */
static double operations(const struct setting *set)
{
    const double seen = (double)set->rows + ((double)set->queries + 1) / 2;
    return 4 * (double)(set->heads * set->shape.sizes[0].head_dim * set->shape.layers * set->queries) *
           seen;
}

static void run(struct kv *kv, const struct setting *set, size_t before, struct err *err)
{
    struct attn *attn;
    const struct attn_shape shape = {.heads = set->heads,
                                     .kv_heads = set->shape.sizes[0].kv_heads,
                                     .head_dim = set->shape.sizes[0].head_dim};
    const struct attn_limits limits = {
        .positions = set->shape.max_rows, .step_rows = set->queries, .queries = 1};
    const struct attn_query query = {.rows = set->queries};
    const struct attn_step step = {kv, kernels_select(NULL, err), &query, 1, NULL};
    const size_t width = set->heads * set->shape.sizes[0].head_dim;
    float *q = mem_zalloc(2 * set->queries * width, sizeof *q);
    double read = INFINITY, whole = INFINITY;
    fill(kv, set, err);
    for (size_t i = 0; i < set->steps; i++)
        read = fmin(read, read_ms(kv, set, err));
    const size_t measured = file_proc_bytes("/proc/self/status", "RssAnon") - before;
    if (attn_open(&attn, attn_find(NULL, err), &shape, 1, &limits, err) < 0)
        die(err);
    for (size_t i = 0; i < set->steps; i++)
        whole = fmin(whole, step_ms(kv, attn, &step, q, q + set->queries * width, err));
    printf("{\"rows\": %zu, \"group\": %zu, \"read_ms\": %.2f, \"step_ms\": %.2f, \"counted\": %zu, "
           "\"measured\": %zu, "
           "\"bytes\": %zu, \"queries\": %zu, \"operations\": %.0f}\n",
           set->rows, kv_offload(kv).heads_at_once, read, whole, kv_stats(kv).resident_bytes, measured,
           kv_rows_bytes(kv, set->rows), set->queries, operations(set));
    attn_close(attn);
    free(q);
}

int main(int argc, char **argv)
{
    struct err err;
    struct kv_spec spec;
    struct kv_streaming sparse = {0};
    struct kv *kv = NULL;
    if (argc < 6 || argc > 8)
        return 2;
    const size_t rows = strtoull(argv[1], NULL, 10), steps = strtoull(argv[5], NULL, 10),
                 queries = argc == 8 ? strtoull(argv[7], NULL, 10) : 1;
    const struct setting set = {rows, HEADS, steps, queries,
                                kv_shape_uniform(strtoull(argv[2], NULL, 10),
                                                 (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D},
                                                 rows + size_max(CHUNK, steps * queries), DTYPE_BF16)};
    kernels_setup();
    threads_set((int)strtoul(argv[4], NULL, 10));
    const bool some_sparse = argc > 6 && strcmp(argv[6], "-") != 0;
    const size_t before = file_proc_bytes("/proc/self/status", "RssAnon");
    if (kv_spec_parse(&spec, argv[3], &err) < 0 ||
        (some_sparse && kv_streaming_open(&sparse, argv[6], set.shape.layers, KV_HEADS, &err) < 0))
        die(&err);
    spec.memory = &cpu_memory;
    spec.offload.streaming = some_sparse ? &sparse : NULL;
    if (kv_open(&kv, &spec, &set.shape, 1, &err) < 0)
        die(&err);
    run(kv, &set, before, &err);
    kv_close(kv);
    kv_streaming_release(&sparse);
    return 0;
}
