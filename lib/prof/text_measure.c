/* What running a text shows of a model: its retrieval heads, and the ranges of keys and values. */
#include "prof/text_measure.h"

#include "base/mem.h"
#include "format/detect.h"
#include "prof/retrieval_text.h"

/* Runs the n tokens `id` in a new session, which the caller closes, also after an error; `score` may be NULL. */
static int run_text(struct session **out, const struct run *run, const struct model *model,
                    struct cache_types kv_types, struct retrieval_score *score, const uint32_t *id,
                    size_t n, struct err *err)
{
    struct session_options options = run_session_options(run, n, 1);
    options.kv_types = kv_types;
    if (kv_spec_parse(&options.kv, "upfront", err) < 0 || session_open(out, model, &options, err) < 0)
        return -1;
    struct session *s = *out;
    if (score)
        forward_set_retrieval(session_pass(s), score);
    session_begin(s, 0, n, n);
    for (size_t at = 0, rows; at < n; at += rows) {
        rows = size_min(batch_space(s), n - at);
        batch_add(s, 0, id + at, rows);
        if (*run->interrupted)
            return err_code(err, ERR_INTERRUPTED, "interrupted");
        if (session_run(s, run->threads, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- retrieval heads ---- */

/* Orders heads by retrieval score, ascending; ties by index, descending. */
static int compare_heads(const void *a, const void *b)
{
    const struct retrieval_head *const *x = a, *const *y = b;
    if ((*x)->score != (*y)->score)
        return (*x)->score < (*y)->score ? -1 : 1;
    return *x < *y ? 1 : -1;
}

static int choose_streaming(struct retrieval_head *head, size_t n, double sparsity, struct err *err)
{
    AUTO(free_auto) struct retrieval_head **order = mem_alloc(n, sizeof *order);
    if (!order)
        return err_no_memory(err, "%zu heads", n);
    for (size_t i = 0; i < n; i++)
        order[i] = &head[i];
    qsort(order, n, sizeof *order, compare_heads);
    const size_t sparse = (size_t)(sparsity * (double)n + 0.5);
    for (size_t i = 0; i < n; i++)
        order[i]->sparse = i < sparse;
    return 0;
}

/* Sets range[n] to what each of a text's last tokens should retrieve: what they repeat or, in a text that repeats too
 * little, all that a streaming head would not see. Returns the number of these tokens. */
static size_t choose_ranges(struct position_range *range, const struct retrieval_options *o,
                            const uint32_t *id, size_t n, size_t *repeats)
{
    *repeats = retrieval_text_repeats(range, id, n, o->sink, o->recent);
    if (*repeats >= REPEATS_LEAST)
        return *repeats;
    const size_t queries = size_min(REACH_QUERIES, n - o->sink - o->recent);
    for (size_t p = 0; p < n; p++)
        range[p] = p + queries < n ? (struct position_range){0, 0}
                                   : (struct position_range){o->sink, p + 1 - o->recent};
    return queries;
}

/* Sets the score of each KV head, that of the query head of its group which retrieves most, and which become
 * streaming heads. weight: of each query head, sums over `queries` queries. */
static int score_heads(struct retrieval_head *head, const struct retrieval_options *o,
                       const struct config *config, const double *weight, size_t queries,
                       struct err *err)
{
    const size_t kv_heads = config->kv_heads, all = config->layers * kv_heads,
                 group = config->heads / kv_heads;
    for (size_t i = 0; i < all; i++) {
        double most = 0;
        for (size_t g = 0; g < group; g++)
            most = fmax(most, weight[i * group + g]);
        head[i] = (struct retrieval_head){i / kv_heads, i % kv_heads, most / (double)queries, false};
    }
    return choose_streaming(head, all, o->sparsity, err);
}

int retrieval_heads_measure(struct retrieval_head *head, size_t *repeats,
                            const struct retrieval_options *o, const struct run *run,
                            const struct model *model, const uint32_t *id, size_t n, struct err *err)
{
    const struct config *config = &model->config;
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(config, 1, &f32);
    if (shape.layers < config->layers || config_heads_differ(config))
        return err_set(err,
                       "retrieval heads need a model whose layers all have KV entries of their own, "
                       "and as many heads of one size");
    if (n <= o->sink + o->recent)
        return err_set(
            err,
            "%zu tokens are computed, of which every head sees the first %zu and the last %zu: "
            "give a longer text or -N, or less of --sink and --recent",
            n, o->sink, o->recent);
    struct position_range *range = mem_alloc(n, sizeof *range);
    double *weight = mem_zalloc(config->layers * config->heads, sizeof *weight);
    struct session *session = NULL;
    int rc = range && weight ? 0 : err_no_memory(err, "the scores of %zu tokens", n);
    if (rc == 0) {
        const size_t queries = choose_ranges(range, o, id, n, repeats);
        const size_t from = n - size_min(n, REPEATS_TAIL); /* ranges before are empty */
        struct retrieval_score score = {from, range + from, weight};
        rc = run_text(&session, run, model, run->kv_types, &score, id, n, err);
        session_close(session);
        if (rc == 0)
            rc = score_heads(head, o, config, weight, queries, err);
    }
    free(weight);
    free(range);
    return rc;
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

/* ---- ranges ---- */

static int measure_head(struct kv_extent *range, struct session *session, size_t layer, bool v,
                        size_t head, float *rows, struct err *err)
{
    struct kv *kv = session_kv(session);
    const size_t n = kv_seq_info(kv, 0).n * kv_sizes_of(&kv_setup(kv)->shape, layer)->head_dim;
    if (kv_read(kv, 0, layer, v, head, rows, err) < 0)
        return -1;
    *range = (struct kv_extent){rows[0], rows[0]};
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)rows[i]) <= KV_SCALES_LARGEST))
            return err_set(err,
                           "layer %zu, head %zu: %s has the value %g, shared scales are for at most %g",
                           layer, head, v ? "V" : "K", (double)rows[i], KV_SCALES_LARGEST);
        range->low = fminf(range->low, rows[i]);
        range->high = fmaxf(range->high, rows[i]);
    }
    return 0;
}

static int measure_ranges(struct kv_scales *s, struct session *session, struct err *err)
{
    const struct kv_shape *shape = &kv_setup(session_kv(session))->shape;
    AUTO(free_auto)
    float *rows = mem_alloc(session_length(session, 0), kv_shape_dim(shape) * sizeof *rows);
    int rc = rows ? 0 : err_no_memory(err, "the values of a head");
    for (size_t l = 0; l < shape->layers; l++) {
        const size_t matrices = kv_matrices(kv_sizes_of(shape, l));
        for (size_t i = 0; rc == 0 && i < matrices * kv_sizes_of(shape, l)->kv_heads; i++) {
            const size_t v = i % matrices, head = i / matrices;
            rc = measure_head(&s->range[kv_scales_index(shape, l, v, head)], session, l, v, head, rows,
                              err);
        }
    }
    return rc;
}

int cache_ranges_measure(struct kv_scales *scales, const struct run *run, const struct model *model,
                         const uint32_t *id, size_t n, struct err *err)
{
    struct session *session = NULL;
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(&model->config, n, &f32);
    *scales = (struct kv_scales){.n = kv_scales_count(&shape)};
    if (!n)
        return err_set(err, "the text has no tokens: give a longer text");
    scales->range = mem_alloc(scales->n, sizeof *scales->range);
    int rc = scales->range ? 0 : err_no_memory(err, "%zu ranges", scales->n);
    if (rc == 0 && (rc = run_text(&session, run, model, f32, NULL, id, n, err)) == 0)
        rc = measure_ranges(scales, session, err);
    session_close(session);
    if (rc < 0)
        kv_scales_release(scales);
    return rc;
}
