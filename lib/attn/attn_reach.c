/* How far heads look. */
#include "attn/attn_reach.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

/* Of one query: the sums of e^(score - max), near and beyond. */
struct look {
    double max, near, beyond;
};

struct looking {
    const struct attn *attn;
    const struct attn_step *step;
    const struct attn_layer *layer;
    const float *q;
    const struct attn_query *query;
    size_t first;       /* of the query's rows that count */
    struct look *look;  /* [KV heads][rows][group] */
    float *row;         /* [KV heads][d] */
    struct err *errors; /* [KV heads], where one failed */
    bool *failed;
};

static double score(const struct looking *s, const float *q, const float *k, size_t head,
                    double distance)
{
    const struct attn_shape *shape = &s->attn->shape;
    double sum = 0;
    for (size_t j = 0; j < shape->head_dim; j++)
        sum += (double)q[j] * (double)k[j];
    sum *= (double)shape->scale;
    if (shape->softcap > 0)
        sum = (double)shape->softcap * tanh(sum / (double)shape->softcap);
    return shape->slopes ? sum - (double)shape->slopes[head] * distance : sum;
}

static void add(struct look *look, double score, bool beyond)
{
    if (score > look->max) {
        const double shrink = exp(look->max - score);
        look->max = score;
        look->near *= shrink;
        look->beyond *= shrink;
    }
    *(beyond ? &look->beyond : &look->near) += exp(score - look->max);
}

/* A row of K at position `at` as the queries of its group see it. */
static void look_at(const struct looking *s, size_t kv_head, size_t at, const float *k,
                    struct look *look)
{
    const struct attn_reach *reach = s->attn->reach;
    const struct attn_shape *shape = &s->attn->shape;
    const size_t group = s->attn->group, n = kv_position(s->step->kv, s->query->seq);
    for (size_t i = s->first; i < s->query->rows; i++) {
        const size_t own = n + i, first = kv_recent_start(own, s->layer->window);
        const bool beyond = at >= reach->sink && at < kv_recent_start(own, reach->recent);
        for (size_t g = 0; at >= first && at <= own && g < group; g++) {
            const size_t head = kv_head * group + g;
            const float *q = s->q + ((s->query->first + i) * shape->heads + head) * shape->head_dim;
            add(&look[(i - s->first) * group + g], score(s, q, k, head, (double)(own - at)), beyond);
        }
    }
}

/* All rows that a view shows of a KV head. */
static void look_along(const struct looking *s, const struct kv_view *view, struct look *look)
{
    const size_t d = s->attn->shape.head_dim;
    float *k = s->row + view->head * d;
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *span = &view->span[i];
        for (size_t row = 0; row < span->valid; row++) {
            dtype_widen(k, view->type, (const char *)span->k + view->offset + kv_span_row(span, row),
                        d);
            look_at(s, view->head, span->first + row, k, look);
        }
    }
}

static void each_head(void *arg, size_t head)
{
    const struct looking *s = arg;
    const size_t looks = (s->query->rows - s->first) * s->attn->group;
    struct look *look = s->look + head * looks;
    double *beyond = s->attn->reach->beyond + s->layer->index * s->attn->shape.kv_heads + head;
    struct kv_view view;
    s->failed[head] =
        kv_view(s->step->kv, s->query->seq, s->layer->index, head, 1, &view, &s->errors[head]) < 0;
    if (s->failed[head])
        return;
    for (size_t i = 0; i < looks; i++)
        look[i] = (struct look){.max = -INFINITY};
    look_along(s, &view, look);
    for (size_t i = 0; i < looks; i++)
        *beyond += look[i].beyond / (look[i].near + look[i].beyond);
}

static int look(struct looking *s, struct err *err)
{
    const size_t heads = s->attn->shape.kv_heads, d = s->attn->shape.head_dim;
    const size_t looks = (s->query->rows - s->first) * s->attn->group;
    s->look = mem_alloc(heads * looks, sizeof *s->look);
    s->row = mem_alloc(heads * d, sizeof *s->row);
    s->errors = mem_alloc(heads, sizeof *s->errors);
    s->failed = mem_zalloc(heads, sizeof *s->failed);
    int rc = 0;
    if (!s->look || !s->row || !s->errors || !s->failed)
        rc = err_set(err, "out of memory for what %zu queries see", looks);
    else
        threads_each(heads, SIZE_MAX, each_head, s);
    for (size_t head = 0; rc == 0 && head < heads; head++)
        if (s->failed[head]) {
            *err = s->errors[head];
            rc = -1;
        }
    free(s->look);
    free(s->row);
    free(s->errors);
    free(s->failed);
    return rc;
}

int attn_reach_add(const struct attn *attn, const struct attn_step *step,
                   const struct attn_layer *layer, const float *q, struct err *err)
{
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *query = &step->query[i];
        const size_t n = kv_position(step->kv, query->seq);
        struct looking s = {
            attn, step, layer, q, query, attn->reach->from - size_min(n, attn->reach->from),
            0,    0,    0,     0};
        if (s.first < query->rows && look(&s, err) < 0)
            return -1;
    }
    return 0;
}
