/* The attention block alone: what the cache's policy costs, with nothing of the model around it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "model/synth.h"
#include "prof/run.h"

struct bench {
    const struct run *run;
    struct kv *kv;
    struct attn *attn;
    struct attn_query *query; /* one row per sequence */
    float *q, *k, *v, *out;   /* [batch][width] */
    struct attn_times times;
};

static size_t q_width(const struct run *run) { return run->config.heads * run->config.head_dim; }
static size_t kv_width(const struct run *run) { return run->config.kv_heads * run->config.head_dim; }

static int open_bench(struct bench *b, const struct kv_spec *spec, struct err *err)
{
    const struct run *run = b->run;
    const struct config *c = &run->config;
    const struct kv_shape shape = {c->layers, c->kv_heads, c->head_dim, run->N, run->kv_type};
    struct synth synth = {0};
    b->query = mem_zalloc(run->batch, sizeof *b->query);
    b->q = mem_alloc(run->batch * q_width(run), sizeof *b->q);
    b->out = mem_alloc(run->batch * q_width(run), sizeof *b->out);
    b->k = mem_alloc(run->batch * kv_width(run), sizeof *b->k);
    b->v = mem_alloc(run->batch * kv_width(run), sizeof *b->v);
    if (!b->query || !b->q || !b->out || !b->k || !b->v || !synth_open(&synth, run->seed)) {
        synth_close(&synth);
        return err_set(err, "out of memory for a batch of %zu", run->batch);
    }
    synth_fill(&synth, 0, 0, run->batch * q_width(run), DTYPE_F32, b->q);
    synth_fill(&synth, 1, 0, run->batch * kv_width(run), DTYPE_F32, b->k);
    synth_fill(&synth, 2, 0, run->batch * kv_width(run), DTYPE_F32, b->v);
    synth_close(&synth);
    for (size_t s = 0; s < run->batch; s++)
        b->query[s] = (struct attn_query){.seq = s, .first = s, .rows = 1};
    if (kv_open(&b->kv, spec, &shape, run->batch, err) < 0)
        return -1;
    const struct attn_shape attn_shape = {c->heads, c->kv_heads, c->head_dim, 0, 0, NULL};
    const struct attn_limits limits = {run->N, run->batch, run->batch};
    return attn_open(&b->attn, run->attn, &attn_shape, &limits, err);
}

static void close_bench(struct bench *b)
{
    attn_close(b->attn);
    kv_close(b->kv);
    free(b->query);
    free(b->q);
    free(b->k);
    free(b->v);
    free(b->out);
}

static int block_step(struct bench *b, struct block_result *result, struct err *err)
{
    const struct run *run = b->run;
    const struct attn_step step = {b->kv, run->kernels, b->query, run->batch, &b->times};
    for (size_t s = 0; s < run->batch; s++)
        if (kv_room(b->kv, s, 1, err) < 0)
            return -1;
    if (attn_begin(b->attn, &step, err) < 0)
        return -1;
    for (size_t layer = 0; layer < run->config.layers; layer++) {
        const struct attn_layer at = {layer, 0};
        const double start = clock_ms();
        for (size_t s = 0; s < run->batch; s++)
            kv_append(b->kv, s, layer, b->k + s * kv_width(run), b->v + s * kv_width(run),
                      kv_width(run));
        const double appended = clock_ms();
        if (attn_run(b->attn, &step, &at, b->q, b->out, err) < 0)
            return -1;
        result->append_ms += appended - start;
        result->sdpa_ms += clock_ms() - appended;
    }
    for (size_t s = 0; s < run->batch; s++)
        kv_commit(b->kv, s, 1);
    return 0;
}

/* The parts were summed over threads: they share the wall time in the same proportions. */
static void share_sdpa(const struct attn_times *times, struct block_result *result)
{
    const double sum = times->scores_ms + times->softmax_ms + times->values_ms;
    if (!(sum > 0)) {
        result->scores_ms = result->softmax_ms = result->values_ms = -1;
        return;
    }
    const double scale = result->sdpa_ms / sum;
    result->scores_ms = times->scores_ms * scale;
    result->softmax_ms = times->softmax_ms * scale;
    result->values_ms = times->values_ms * scale;
}

int run_block(const struct run *run, const struct kv_spec *spec, struct block_result *result,
              struct err *err)
{
    struct bench b = {.run = run};
    int rc = -1;
    *result = (struct block_result){0};
    threads_set(run->threads);
    if (open_bench(&b, spec, err) < 0)
        goto out;
    counting_start(run->counting);
    const double start = clock_ms();
    for (size_t n = 0; n < run->N; n++) {
        if (*run->interrupted) {
            err_set(err, "interrupted");
            goto out;
        }
        if (block_step(&b, result, err) < 0)
            goto out;
    }
    result->total_ms = clock_ms() - start;
    result->counters = counting_read(run->counting);
    result->kv = *kv_stats(b.kv);
    result->T = kv_setup(b.kv)->T;
    result->r = kv_setup(b.kv)->r;
    result->T_from = kv_setup(b.kv)->T_from;
    share_sdpa(&b.times, result);
    rc = 0;
out:
    close_bench(&b);
    return rc;
}
