/* Benchmark of fused attention in decoding, relative to the memory read rate: one query row for
 * each of B sequences, or for B * W beams, W of which share a prompt (segment paper, figure 6).
 *
 *   attention POLICY HEADS KV_HEADS HEAD_DIM LAYERS BATCH BEAMS PROMPT ANSWER KV_TYPE THREADS ROUNDS [SWAPS [POLICY SWAPS]]
 *
 * SWAPS says how beams are reordered after each generated token: `none`; `any`: with random
 * parents; `families`: with random parents within each half of the beams, so that the halves have
 * no common ancestor behind the prompt.
 *
 * Prints medians, and last the share of the read rate, counting each distinct KV entry once,
 * whatever the policy. With a second policy and SWAPS, the two caches are measured alternately,
 * and the median ratio of their times follows. BMC_ISA selects a kernel set, ALLOC
 * how the cache is allocated, in the words of --alloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "quant/cache_types.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/text_util.h"
#include "cpu/cpu_memory.h"
#include "base/threads.h"
#include "bench.h"
#include "prof/roofline.h"

enum { READ_BYTES = 512 << 20, NUMBERS = 8 };

static void append(struct kv *kv, size_t seq, const float *values, size_t rows)
{
    struct err err;
    const struct kv_shape *shape = &kv_setup(kv)->shape;
    if (rows && kv_ensure(kv, seq, rows, &err) < 0)
        die(&err);
    if (!rows)
        return;
    for (size_t layer = 0; layer < shape->layers; layer++)
        kv_append(kv, seq, layer, cpu_addr(values), cpu_addr(values),
                  shape->sizes[0].kv_heads * shape->sizes[0].head_dim, NULL);
    kv_commit(kv, seq, rows);
}

struct cache {
    const char *policy, *swaps;
    struct kv *kv;
    size_t entries; /* distinct ones */
    double copied;  /* bytes per generated token, in all layers */
    double ms[MAX_ROUNDS], share[MAX_ROUNDS];
};

struct beams {
    size_t batch, width, prompt, answer;
};

/* Number of distinct KV entries among the beams' answers; lineage[w][n] is the beam that computed
 * entry n of beam w. */
static size_t count_distinct(size_t **lineage, size_t width, size_t n)
{
    size_t distinct = 0;
    for (size_t at = 0; at < n; at++)
        for (size_t w = 0; w < width; w++) {
            bool first = true;
            for (size_t v = 0; v < w; v++)
                first = first && lineage[v][at] != lineage[w][at];
            distinct += first;
        }
    return distinct;
}

/* Generates the answers of one prompt's beams, a token at a time; returns their number of distinct
 * KV entries. */
static size_t search(struct cache *c, const struct beams *beams, size_t first, const float *values)
{
    struct err err;
    static unsigned seed = 1;
    const size_t W = beams->width, n = beams->answer - 1;
    size_t seq[64], parent[64], *lineage[64], *was[64];
    for (size_t w = 0; w < W; w++) {
        seq[w] = first + w;
        lineage[w] = mem_zalloc(n + 1, sizeof **lineage);
        was[w] = mem_zalloc(n + 1, sizeof **was);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t w = 0; w < W; w++) {
            append(c->kv, seq[w], values, 1);
            lineage[w][i] = w;
            memcpy(was[w], lineage[w], n * sizeof **was);
        }
        const size_t family = strcmp(c->swaps, "families") == 0 ? div_up(W, 2) : W;
        for (size_t w = 0; w < W; w++) {
            const size_t from = w / family * family;
            parent[w] = from + (size_t)rand_r(&seed) % size_min(family, W - from);
        }
        if (strcmp(c->swaps, "none") == 0)
            continue;
        if (kv_reorder(c->kv, seq, parent, W, &err) < 0)
            die(&err);
        for (size_t w = 0; w < W; w++)
            memcpy(lineage[w], was[parent[w]], n * sizeof **was);
    }
    const size_t distinct = count_distinct(lineage, W, n) + W; /* and those of the last token */
    for (size_t w = 0; w < W; w++)
        free(lineage[w]), free(was[w]);
    return distinct;
}

/* Fills a cache as beam search does: each prompt, forks for its beams, their answers. */
static void fill_cache(struct cache *c, const struct kv_shape *shape, const struct beams *beams)
{
    struct err err;
    struct kv_spec spec;
    const size_t row = shape->sizes[0].kv_heads * shape->sizes[0].head_dim,
                 queries = beams->batch * beams->width;
    float *values = mem_zalloc(beams->prompt * row, sizeof *values);
    const int parsed = kv_spec_parse(&spec, c->policy, &err);
    const char *alloc = getenv("ALLOC");
    const size_t how = text_choice(VM_ALLOCS, alloc ? alloc : "pool");
    spec.memory = &cpu_memory;
    spec.alloc = (enum vm_alloc)how;
    if (how == SIZE_MAX || !values || beams->width > 64 || parsed < 0 ||
        kv_open(&c->kv, &spec, shape, queries, &err) < 0)
        die(&err);
    for (size_t i = 0; i < beams->prompt * row; i++)
        values[i] = (float)(i % 977) / 977 - .5f;
    size_t prompts = 0;
    for (size_t s = 0; s < queries; s += beams->width) {
        append(c->kv, s, values, beams->prompt);
        for (size_t w = 1; w < beams->width; w++)
            if (kv_fork(c->kv, s + w, s, beams->prompt, &err) < 0)
                die(&err);
    }
    prompts = kv_stats(c->kv).copied_bytes;
    c->entries = beams->batch * beams->prompt;
    for (size_t s = 0; s < queries; s += beams->width)
        c->entries += search(c, beams, s, values);
    c->copied =
        (double)(kv_stats(c->kv).copied_bytes - prompts) / (double)(beams->batch * beams->answer);
    free(values);
}

/* Attention time of one step over all layers. */
static double step_ms(struct attn *attn, const struct attn_step *step, const float *q, float *out)
{
    struct err err;
    for (size_t s = 0; s < step->n_queries; s++)
        if (kv_ensure(step->kv, s, 1, &err) < 0)
            die(&err);
    if (attn_begin(attn, step, &err) < 0)
        die(&err);
    const double start = clock_ms();
    for (size_t layer = 0; layer < kv_setup(step->kv)->shape.layers; layer++) {
        const struct attn_layer at = {.index = layer};
        if (attn_run(attn, step, &at, q, out, &err) < 0)
            die(&err);
    }
    const double ms = clock_ms() - start;
    for (size_t s = 0; s < step->n_queries; s++)
        kv_commit(step->kv, s, 0);
    return ms;
}

int main(int argc, char **argv)
{
    struct err err;
    size_t n[NUMBERS];
    enum dtype type;
    if ((argc != NUMBERS + 5 && argc != NUMBERS + 6 && argc != NUMBERS + 8) ||
        !cache_type_find(argv[NUMBERS + 2], &type))
        return 2;
    for (int i = 0; i < NUMBERS; i++)
        n[i] = strtoul(argv[i + 2], NULL, 10);
    const size_t heads = n[0], batch = n[4], beams = n[5], prompt = n[6], answer = size_max(n[7], 1);
    const size_t queries = batch * beams, rounds = strtoul(argv[NUMBERS + 4], NULL, 10);
    const struct kv_shape shape = kv_shape_uniform(
        n[3], (struct kv_sizes){.kv_heads = n[1], .head_dim = n[2]}, prompt + answer, type);
    const struct attn_shape attn_shape = {
        .heads = heads, .kv_heads = shape.sizes[0].kv_heads, .head_dim = shape.sizes[0].head_dim};
    const struct attn_limits limits = {
        .positions = shape.max_rows, .step_rows = queries, .queries = queries};
    struct roof_block block;
    struct attn *attn;
    kernels_setup();
    const struct kernels *kernels = kernels_select(getenv("BMC_ISA"), &err);
    const struct attn_backend *fused = attn_find("fused", &err);
    if (!kernels || !fused)
        die(&err);
    threads_set((int)strtoul(argv[NUMBERS + 3], NULL, 10));
    if (roof_block_open(&block, READ_BYTES, &err) < 0 ||
        attn_open(&attn, fused, &attn_shape, 1, &limits, &err) < 0)
        die(&err);
    const size_t width = heads * shape.sizes[0].head_dim;
    float *q = mem_zalloc(queries * width, sizeof *q), *out = mem_zalloc(queries * width, sizeof *out);
    struct attn_query *query = mem_zalloc(queries, sizeof *query);
    if (!q || !out || !query)
        return 1;
    for (size_t i = 0; i < queries * width; i++)
        q[i] = (float)(i % 31) / 31 - .5f;
    for (size_t s = 0; s < queries; s++)
        query[s] = (struct attn_query){.seq = s, .first = s, .rows = 1};
    struct cache cache[2] = {
        {argv[1], argc > NUMBERS + 5 ? argv[NUMBERS + 5] : "none", NULL, 0, 0, {0}, {0}}};
    const size_t caches = argc > NUMBERS + 6 ? 2 : 1;
    if (caches == 2)
        cache[1] = (struct cache){.policy = argv[NUMBERS + 6], .swaps = argv[NUMBERS + 7]};
    const struct beams shape_of = {batch, beams, prompt, answer};
    for (size_t i = 0; i < caches; i++)
        fill_cache(&cache[i], &shape, &shape_of);
    double read[MAX_ROUNDS], ratio[MAX_ROUNDS];
    const size_t most = size_min(rounds, MAX_ROUNDS);
    for (size_t r = 0; r < most; r++) {
        read[r] = roof_read_gb_s(&block, 3);
        for (size_t i = 0; i < caches; i++) {
            struct cache *c = &cache[(i + r) % caches];
            const struct attn_step step = {c->kv, kernels, query, queries, NULL};
            c->ms[r] = step_ms(attn, &step, q, out);
            c->share[r] = (double)kv_rows_bytes(c->kv, c->entries) / c->ms[r] / 1e6 / read[r];
        }
        ratio[r] = cache[1].ms[r] / cache[0].ms[r];
    }
    for (size_t i = 0; i < caches; i++) {
        struct cache *c = &cache[i];
        printf("%s, swaps %s: B = %zu, %zu beams, %zu + %zu rows, %zu heads of %zu, %zu of K and V, "
               "%zu layers, %s, cache %s: %.2f rows copied per token, %.0f MB of distinct entries, "
               "%.2f ms, read rate %.1f GB/s, share %.3f\n",
               c->policy, c->swaps, batch, beams, prompt, answer, heads, shape.sizes[0].head_dim,
               shape.sizes[0].kv_heads, shape.layers, kernels->isa, argv[NUMBERS + 2],
               c->copied / (double)kv_rows_bytes(c->kv, 1),
               (double)kv_rows_bytes(c->kv, c->entries) / 1e6, median(c->ms, most), median(read, most),
               median(c->share, most));
    }
    if (caches == 2)
        printf("time of the second over the first: %.3f\n", median(ratio, most));
    return 0;
}
