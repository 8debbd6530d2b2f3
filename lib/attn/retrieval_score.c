/* Computes retrieval scores of heads. */
#include "attn/retrieval_score.h"

#include "attn/attn_rows.h"
#include "attn/query_mask.h"
#include "base/mem.h"
#include "base/threads.h"

/* Sums of e^(score - max) of a query in one head, over the positions of its range and over all others. */
struct score_sums {
    double max, inside, outside;
};

struct retrieval_job {
    const struct attn *attn;
    const struct attn_step *step;
    const struct attn_layer *layer;
    const float *q;
    const struct attn_query *query;
    size_t first;            /* first query row that is not ignored */
    struct query_mask *mask; /* [rows - first] */
    struct score_sums *sums; /* [KV heads][rows - first][GQA group] */
    float *row;              /* [KV heads][d]: a key as f32 */
    struct err *errors;      /* [KV heads], valid where failed[] */
    bool *failed;
};

static double score(const struct retrieval_job *s, const float *q, const float *k, size_t head,
                    double distance)
{
    const struct attn_shape *shape = s->attn->shape;
    double sum = 0;
    for (size_t j = 0; j < shape->head_dim; j++)
        sum += (double)q[j] * (double)k[j];
    sum *= (double)shape->scale;
    if (shape->softcap > 0)
        sum = (double)shape->softcap * tanh(sum / (double)shape->softcap);
    return shape->slopes ? sum - (double)shape->slopes[head] * distance : sum;
}

static void add(struct score_sums *sums, double score, bool inside)
{
    if (score > sums->max) {
        const double scale = exp(sums->max - score);
        sums->max = score;
        sums->inside *= scale;
        sums->outside *= scale;
    }
    *(inside ? &sums->inside : &sums->outside) += exp(score - sums->max);
}

/* The range of query row first + i. */
static const struct position_range *range_of(const struct retrieval_job *s, size_t i)
{
    return &s->attn->retrieval->range[s->mask[i].position - s->attn->retrieval->from];
}

/* Adds the scores of the key k at position `at` with all query rows, in all heads of its GQA
 * group. */
static void add_key(const struct retrieval_job *s, size_t kv_head, size_t at, const float *k,
                    struct score_sums *sums)
{
    const struct attn_shape *shape = s->attn->shape;
    const size_t gqa = s->attn->gqa;
    for (size_t i = 0; i < s->query->rows - s->first; i++) {
        const struct query_mask *mask = &s->mask[i];
        const struct position_range *range = range_of(s, i);
        if (!query_mask_has(mask, at) || range->first >= range->end)
            continue;
        for (size_t g = 0; g < gqa; g++) {
            const size_t head = kv_head * gqa + g;
            const float *q =
                s->q + ((s->query->first + s->first + i) * shape->heads + head) * shape->head_dim;
            add(&sums[i * gqa + g], score(s, q, k, head, (double)(mask->position - at)),
                at >= range->first && at < range->end);
        }
    }
}

static void add_view(const struct retrieval_job *s, const struct kv_view *view, struct score_sums *sums)
{
    const size_t d = s->attn->shape->head_dim;
    float *k = s->row + view->head * d;
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *span = &view->span[i];
        for (size_t row = 0; row < span->valid; row++) {
            dtype_to_f32(k, view->type[KV_K],
                         span_k(span) + view->offset[KV_K] + kv_span_row(span, KV_K, row), d);
            add_key(s, view->head, span->first + row, k, sums);
        }
    }
}

static void score_head(void *arg, size_t head)
{
    const struct retrieval_job *s = arg;
    const size_t n = (s->query->rows - s->first) * s->attn->gqa;
    struct score_sums *sums = s->sums + head * n;
    const size_t gqa = s->attn->gqa;
    double *weight = s->attn->retrieval->weight + s->layer->index * s->attn->shape->heads + head * gqa;
    struct kv_view view;
    s->failed[head] =
        kv_view(s->step->kv, s->query->seq, s->layer->index, head, 1, &view, &s->errors[head]) < 0;
    if (s->failed[head])
        return;
    for (size_t i = 0; i < n; i++)
        sums[i] = (struct score_sums){.max = -INFINITY};
    add_view(s, &view, sums);
    for (size_t i = 0; i < n; i++)
        if (sums[i].inside > 0)
            weight[i % gqa] += sums[i].inside / (sums[i].inside + sums[i].outside);
}

static int score_query(struct retrieval_job *s, struct err *err)
{
    const struct mask_limits limits = {s->layer->window, s->layer->chunk, s->layer->ahead, 0, 0};
    const size_t heads = s->attn->shape->kv_heads, d = s->attn->shape->head_dim;
    const size_t rows = s->query->rows - s->first, n = rows * s->attn->gqa;
    s->mask = mem_alloc(rows, sizeof *s->mask);
    s->sums = mem_alloc(heads * n, sizeof *s->sums);
    s->row = mem_alloc(heads * d, sizeof *s->row);
    s->errors = mem_alloc(heads, sizeof *s->errors);
    s->failed = mem_zalloc(heads, sizeof *s->failed);
    int rc = 0;
    if (!s->mask || !s->sums || !s->row || !s->errors || !s->failed) {
        rc = err_no_memory(err, "the retrieval scores of %zu queries", n);
    } else {
        for (size_t i = 0; i < rows; i++)
            s->mask[i] = query_mask_of(s->step->kv, s->query, s->first + i, &limits);
        parallel_for(heads, SIZE_MAX, score_head, s);
    }
    for (size_t head = 0; rc == 0 && head < heads; head++)
        if (s->failed[head]) {
            *err = s->errors[head];
            rc = -1;
        }
    free(s->mask);
    free(s->sums);
    free(s->row);
    free(s->errors);
    free(s->failed);
    return rc;
}

int retrieval_score_add(const struct attn *attn, const struct attn_step *step,
                        const struct attn_layer *layer, const float *q, struct err *err)
{
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *query = &step->query[i];
        const size_t n = kv_position(step->kv, query->seq), from = attn->retrieval->from;
        struct retrieval_job s = {.attn = attn,
                                  .step = step,
                                  .layer = layer,
                                  .q = q,
                                  .query = query,
                                  .first = from - size_min(n, from)};
        if (s.first < query->rows && score_query(&s, err) < 0)
            return -1;
    }
    return 0;
}
