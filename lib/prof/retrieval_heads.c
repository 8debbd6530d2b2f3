/* Finds the retrieval heads of a model. */
#include "prof/retrieval_heads.h"

#include <stdlib.h>

#include "attn/retrieval_score.h"
#include "base/mem.h"
#include "format/detect.h"

static int watch_text(struct retrieval_score *score, const struct run *run, const struct model *model,
                      const uint32_t *id, size_t n, struct err *err)
{
    struct session *session;
    struct session_options options = run_session_options(run, n, 1);
    if (kv_spec_parse(&options.kv, "upfront", err) < 0 ||
        session_open(&session, model, &options, err) < 0)
        return -1;
    forward_set_retrieval(session_pass(session), score);
    const int rc = run_text(session, run, id, n, err);
    session_close(session);
    return rc;
}

/* Orders heads by retrieval score, ascending; ties by index, descending. */
static int compare_heads(const void *a, const void *b)
{
    const struct retrieval_head *const *x = a, *const *y = b;
    if ((*x)->beyond != (*y)->beyond)
        return (*x)->beyond < (*y)->beyond ? -1 : 1;
    return *x < *y ? 1 : -1;
}

static int choose_streaming(struct retrieval_head *head, size_t n, double sparsity, struct err *err)
{
    struct retrieval_head **order = mem_alloc(n, sizeof *order);
    if (!order)
        return err_no_memory(err, "%zu heads", n);
    for (size_t i = 0; i < n; i++)
        order[i] = &head[i];
    qsort(order, n, sizeof *order, compare_heads);
    const size_t sparse = (size_t)(sparsity * (double)n + 0.5);
    for (size_t i = 0; i < n; i++)
        order[i]->sparse = i < sparse;
    free(order);
    return 0;
}

int retrieval_heads_measure(struct retrieval_head *head, const struct retrieval_options *o,
                            const struct run *run, const struct model *model, const uint32_t *id,
                            size_t n, struct err *err)
{
    const size_t kv_heads = model->config.kv_heads, all = model->config.layers * kv_heads,
                 group = model->config.heads / kv_heads;
    const struct kv_shape shape = config_kv_shape(&model->config, 1, DTYPE_F32);
    if (shape.layers < model->config.layers || shape.n_sizes > 1)
        return err_set(err,
                       "retrieval heads need a model whose layers all have KV entries of their own, "
                       "and heads of one size");
    if (n <= o->sink + o->recent)
        return err_set(
            err,
            "%zu tokens are computed, of which every head sees the first %zu and the last %zu: "
            "give a longer text or -N, or less of --sink and --recent",
            n, o->sink, o->recent);
    const size_t queries = size_min(REACH_QUERIES, n - o->sink - o->recent);
    struct retrieval_score score = {o->sink, o->recent, n - queries,
                                    mem_zalloc(all, sizeof *score.beyond)};
    int rc = score.beyond ? watch_text(&score, run, model, id, n, err)
                          : err_no_memory(err, "%zu heads", all);
    for (size_t i = 0; rc == 0 && i < all; i++)
        head[i] = (struct retrieval_head){i / kv_heads, i % kv_heads,
                                          score.beyond[i] / (double)(queries * group), false};
    free(score.beyond);
    return rc < 0 ? -1 : choose_streaming(head, all, o->sparsity, err);
}

int retrieval_heads_list(const struct retrieval_head *head, const struct retrieval_options *o,
                         const struct model *model, struct buf *text, struct err *err)
{
    int rc = buf_addf(text, err,
                      HEADS_BEGIN "; the others see sink and recent tokens only\n"
                                  "sink %zu\nrecent %zu\n",
                      o->sink, o->recent);
    for (size_t i = 0; rc == 0 && i < model->config.layers * model->config.kv_heads; i++)
        if (!head[i].sparse)
            rc = buf_addf(text, err, "%zu %zu\n", head[i].layer, head[i].head);
    return rc;
}
