/* Times fused attention of one row over all layers, each round beside the read rate: for each of B sequences, or for B * W beams, over
 * prompts that W of them have in common and answers of their own (segment paper, figure 6).
 *
 *   attention POLICY HEADS KV_HEADS HEAD_DIM LAYERS BATCH BEAMS PROMPT ANSWER KV_TYPE THREADS ROUNDS
 *
 * Prints medians, and last the share of the read rate: of the bytes that have to be read once, whatever the policy. BMC_ISA names a
 * kernel set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "base/cache_types.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "bench.h"
#include "prof/roof.h"

enum { ROOF_BYTES = 512 << 20, NUMBERS = 8 };

static void append(struct kv *kv, size_t seq, const float *values, size_t rows)
{
    struct err err;
    const struct kv_shape *shape = &kv_setup(kv)->shape;
    if (rows && kv_room(kv, seq, rows, &err) < 0)
        die(&err);
    if (!rows)
        return;
    for (size_t layer = 0; layer < shape->layers; layer++)
        kv_append(kv, seq, layer, values, values, shape->kv_heads * shape->head_dim);
    kv_commit(kv, seq, rows);
}

/* Prompts first, then each one's beams, then their answers: as a search makes them. */
static struct kv *fill_cache(const char *policy, const struct kv_shape *shape, size_t batch,
                             size_t beams, size_t prompt, size_t answer)
{
    struct err err;
    struct kv_spec spec;
    struct kv *kv;
    const size_t row = shape->kv_heads * shape->head_dim, rows = size_max(prompt, answer);
    float *values = mem_zalloc(rows * row, sizeof *values);
    if (!values || kv_spec_parse(&spec, policy, &err) < 0 ||
        kv_open(&kv, &spec, shape, batch * beams, &err) < 0)
        die(&err);
    for (size_t i = 0; i < rows * row; i++)
        values[i] = (float)(i % 977) / 977 - .5f;
    for (size_t s = 0; s < batch * beams; s += beams) {
        append(kv, s, values, prompt);
        for (size_t w = 1; w < beams; w++)
            if (kv_fork(kv, s + w, s, prompt, &err) < 0)
                die(&err);
        for (size_t w = 0; w < beams; w++)
            append(kv, s + w, values, answer - 1);
    }
    free(values);
    return kv;
}

/* Milliseconds of one step's attention over all layers. */
static double step_ms(struct attn *attn, const struct attn_step *step, const float *q, float *out)
{
    struct err err;
    for (size_t s = 0; s < step->n_queries; s++)
        if (kv_room(step->kv, s, 1, &err) < 0)
            die(&err);
    if (attn_begin(attn, step, &err) < 0)
        die(&err);
    const double start = clock_ms();
    for (size_t layer = 0; layer < kv_setup(step->kv)->shape.layers; layer++) {
        const struct attn_layer at = {layer, 0};
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
    if (argc != NUMBERS + 5 || !cache_type_find(argv[NUMBERS + 2], &type))
        return 2;
    for (int i = 0; i < NUMBERS; i++)
        n[i] = strtoul(argv[i + 2], NULL, 10);
    const size_t heads = n[0], batch = n[4], beams = n[5], prompt = n[6], answer = size_max(n[7], 1);
    const size_t queries = batch * beams, rounds = strtoul(argv[NUMBERS + 4], NULL, 10);
    const struct kv_shape shape = {n[3], n[1], n[2], prompt + answer, type};
    const struct attn_shape attn_shape = {heads, shape.kv_heads, shape.head_dim, 0, 0, NULL, false};
    const struct attn_limits limits = {shape.max_rows, queries, queries};
    struct roof_block block;
    struct attn *attn;
    kernels_setup();
    const struct kernels *kernels = kernels_select(getenv("BMC_ISA"), &err);
    const struct attn_backend *fused = attn_find("fused", &err);
    if (!kernels || !fused)
        die(&err);
    threads_set((int)strtoul(argv[NUMBERS + 3], NULL, 10));
    if (roof_block_open(&block, ROOF_BYTES, &err) < 0 ||
        attn_open(&attn, fused, &attn_shape, &limits, &err) < 0)
        die(&err);
    const size_t width = heads * shape.head_dim;
    float *q = mem_zalloc(queries * width, sizeof *q), *out = mem_zalloc(queries * width, sizeof *out);
    struct attn_query *query = mem_zalloc(queries, sizeof *query);
    if (!q || !out || !query)
        return 1;
    for (size_t i = 0; i < queries * width; i++)
        q[i] = (float)(i % 31) / 31 - .5f;
    for (size_t s = 0; s < queries; s++)
        query[s] = (struct attn_query){.seq = s, .first = s, .rows = 1};
    struct kv *kv = fill_cache(argv[1], &shape, batch, beams, prompt, answer);
    const struct attn_step step = {kv, kernels, query, queries, NULL};
    const double bytes =
        (double)kv_rows_bytes(kv, 1) * (double)batch * (double)(prompt + beams * answer);
    double ms[MAX_ROUNDS], read[MAX_ROUNDS], share[MAX_ROUNDS];
    const size_t most = size_min(rounds, MAX_ROUNDS);
    for (size_t r = 0; r < most; r++) {
        read[r] = roof_read_gb_s(&block, 3);
        ms[r] = step_ms(attn, &step, q, out);
        share[r] = bytes / ms[r] / 1e6 / read[r];
    }
    printf("%s: B = %zu, %zu beams, %zu + %zu rows, %zu heads of %zu, %zu of K and V, %zu layers, %s, "
           "cache %s: %.0f MB, %.2f ms, read rate %.1f GB/s, share %.3f\n",
           argv[1], batch, beams, prompt, answer, heads, shape.head_dim, shape.kv_heads, shape.layers,
           kernels->isa, argv[NUMBERS + 2], bytes / 1e6, median(ms, most), median(read, most),
           median(share, most));
    return 0;
}
