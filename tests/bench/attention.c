/* Times fused attention of one row per sequence over all layers, each round beside the read rate.
 *
 *   attention HEADS KV_HEADS HEAD_DIM LAYERS BATCH ROWS KV_TYPE THREADS ROUNDS
 *
 * Prints medians, and last the share of the read rate. BMC_ISA names a kernel set. */
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

enum { ROOF_BYTES = 512 << 20 };

static struct kv *fill_cache(const struct kv_shape *shape, size_t batch)
{
    struct err err;
    struct kv_spec spec;
    struct kv *kv;
    const size_t row = shape->kv_heads * shape->head_dim, rows = shape->max_rows - 1;
    float *values = mem_zalloc(rows * row, sizeof *values);
    if (!values || kv_spec_parse(&spec, "upfront", &err) < 0 ||
        kv_open(&kv, &spec, shape, batch, &err) < 0)
        die(&err);
    for (size_t i = 0; i < rows * row; i++)
        values[i] = (float)(i % 977) / 977 - .5f;
    for (size_t b = 0; b < batch; b++) {
        if (kv_room(kv, b, rows, &err) < 0)
            die(&err);
        for (size_t layer = 0; layer < shape->layers; layer++)
            kv_append(kv, b, layer, values, values, row);
        kv_commit(kv, b, rows);
    }
    free(values);
    return kv;
}

/* Milliseconds of one step's attention over all layers. */
static double step_ms(struct attn *attn, const struct attn_step *step, const float *q, float *out)
{
    struct err err;
    for (size_t b = 0; b < step->n_queries; b++)
        if (kv_room(step->kv, b, 1, &err) < 0)
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
    for (size_t b = 0; b < step->n_queries; b++)
        kv_commit(step->kv, b, 0);
    return ms;
}

int main(int argc, char **argv)
{
    struct err err;
    size_t number[9];
    if (argc != 10)
        return 2;
    for (int i = 0; i < 9; i++)
        number[i] = strtoul(argv[i + 1], NULL, 10);
    enum dtype type;
    if (!cache_type_find(argv[7], &type))
        return 2;
    const size_t heads = number[0], batch = number[4], rounds = size_min(number[8], MAX_ROUNDS);
    const struct kv_shape shape = {number[3], number[1], number[2], number[5], type};
    const struct attn_shape attn_shape = {heads, shape.kv_heads, shape.head_dim, 0, 0, NULL, false};
    const struct attn_limits limits = {shape.max_rows, batch, batch};
    const double bytes = 2. * (double)batch * (double)shape.layers * (double)shape.kv_heads *
                         (double)shape.max_rows * (double)dtype_row_bytes(shape.type, shape.head_dim);
    struct roof_block block;
    struct attn *attn;
    kernels_setup();
    const struct kernels *kernels = kernels_select(getenv("BMC_ISA"), &err);
    const struct attn_backend *fused = attn_find("fused", &err);
    if (!kernels || !fused)
        die(&err);
    threads_set((int)number[7]);
    if (roof_block_open(&block, ROOF_BYTES, &err) < 0 ||
        attn_open(&attn, fused, &attn_shape, &limits, &err) < 0)
        die(&err);
    const size_t width = heads * shape.head_dim;
    float *q = mem_zalloc(batch * width, sizeof *q), *out = mem_zalloc(batch * width, sizeof *out);
    struct attn_query *query = mem_zalloc(batch, sizeof *query);
    if (!q || !out || !query)
        return 1;
    for (size_t i = 0; i < batch * width; i++)
        q[i] = (float)(i % 31) / 31 - .5f;
    for (size_t b = 0; b < batch; b++)
        query[b] = (struct attn_query){.seq = b, .first = b, .rows = 1};
    const struct attn_step step = {fill_cache(&shape, batch), kernels, query, batch, NULL};

    double ms[MAX_ROUNDS], read[MAX_ROUNDS], share[MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++) {
        read[r] = roof_read_gb_s(&block, 3);
        ms[r] = step_ms(attn, &step, q, out);
        share[r] = bytes / ms[r] / 1e6 / read[r];
    }
    printf("B = %zu, %zu rows, %zu heads of %zu, %zu of K and V, %zu layers, %s, cache %s: %.0f MB, "
           "%.2f ms, read rate %.1f GB/s, share %.3f\n",
           batch, shape.max_rows, heads, shape.head_dim, shape.kv_heads, shape.layers, kernels->isa,
           argv[7], bytes / 1e6, median(ms, rounds), median(read, rounds), median(share, rounds));
    return 0;
}
