/* The attention block alone: the cost of a cache policy without the rest of the model. */
#include "base/clock.h"
#include "prof/report.h"
#include "tune/layer_bench.h"

/* Sets the times of scores, softmax and values: phase times, which were summed over threads, are
 * scaled to add up to SDPA's wall time. */
static void share_sdpa(const struct attn_times *times, struct block_result *result)
{
    const double sum = times->scores_ms + times->softmax_ms + times->values_ms;
    if (!(sum > 0)) {
        result->scores_ms = result->softmax_ms = result->values_ms = NAN;
        return;
    }
    const double scale = result->sdpa_ms / sum;
    result->scores_ms = times->scores_ms * scale;
    result->softmax_ms = times->softmax_ms * scale;
    result->values_ms = times->values_ms * scale;
}

/* Decodes a batch of sequences from an empty cache to N tokens, one token per step, with random
 * queries, keys and values. */
int measure_block(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct report *report = arg;
    const struct run *run = &report->run;
    const struct config *c = &run->config;
    struct block_result *result = &f->block;
    struct attn_times parts = {0};
    const struct tune_run what = {.layers = c->layers,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .head_dim = c->head_dim,
                                  .v_dim = c->latent->kv_rank,
                                  .batch = run->batch,
                                  .k = 1,
                                  .m = 1,
                                  .type = run->kv_types.all.k,
                                  .alloc = m->contender->spec.alloc,
                                  .reuse_heap = true,
                                  .backend = run->backend,
                                  .attn = run->attn,
                                  .kernels = run->kernels,
                                  .threads = run->threads,
                                  .seed = run->seed,
                                  .parts = &parts,
                                  .interrupted = run->interrupted};
    struct layer_bench b;
    double ms;
    int rc = 0;
    if (layer_bench_open(&b, &what, &m->contender->spec, run->N, err) < 0)
        return -1;
    const struct attn_counts before = attn_counts(run->attn);
    counting_start(run->counting);
    const double start = clock_ms();
    while (rc == 0 && b.n < run->N)
        rc = layer_bench_grow(&b, &ms, err) < 0 ? -1 : layer_bench_step(&b, &ms, err);
    result->total_ms = clock_ms() - start;
    result->counters = counting_read(run->counting);
    result->attn = attn_counts(run->attn);
    result->attn.primitives -= before.primitives;
    result->attn.primitive_ms -= before.primitive_ms;
    result->append_ms = b.append_ms;
    result->sdpa_ms = b.sdpa_ms;
    result->kv = kv_stats(b.kv);
    share_sdpa(&parts, result);
    f->T = kv_setup(b.kv)->T;
    f->r = kv_setup(b.kv)->r;
    f->T_from = kv_T_from_name(kv_setup(b.kv)->T_from);
    layer_bench_close(&b);
    return rc;
}
