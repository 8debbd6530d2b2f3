/* Mixtures of experts: the choice of experts for a token, their products, and the sum of their outputs.
 *
 * The choice is made in f32 and in one fixed order of operations:
 *
 *   score = softmax(logits) or sigmoid(logits)
 *   key = score + select_bias, or the logit (topk_*, sparsemixer)   decides which experts are chosen
 *   groups: only experts of the best groups
 *   chosen = the `used` largest keys; of equal ones the lower index wins
 *   weight = score of the chosen, or the softmax of their logits alone (topk_softmax), or the sigmoid of each
 *     or, with sparsemixer, exp(0) / sum of exp(logit - own) over the experts not chosen before it whose logits are
 *     at most 2 jitter max(|logit|, own) below its own (arXiv:2409.12136)
 *   weight /= sum of weights                                  with `norm`
 *   weight *= scale, and the expert's gain */
#include "base/repro_math.h"
#include "base/threads.h"
#include "cpu/cpu_pass.h"
#include "quant/pack.h"

struct expert_job {
    const struct op *op;
    const struct op_step *step;
    size_t first;
};

/* ---- routing ---- */

/* x = exp(x - max) / sum */
static void softmax(float *x, size_t n)
{
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += x[i] = (float)repro_exp(x[i] - max);
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* Index of the largest of key[0..n), the first of equal ones; used[] are left out. At least one is
 * unused. */
static size_t largest(const float *key, const bool *used, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!used[i] && (best == n || key[i] > key[best]))
            best = i;
    return best;
}

/* Score of a group of n experts. */
static float group_score(const struct op_route *r, const float *key, size_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const float x = key[i];
        if (x > first) {
            second = first;
            first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return r->group == ROUTER_GROUP_TOP2 && n > 1 ? first + second : first;
}

/* Marks the experts of all but the best groups as used. */
static void drop_groups(const struct op_route *r, const float *key, bool *used)
{
    float score[MAX_EXPERTS];
    bool taken[MAX_EXPERTS] = {false};
    const size_t size = r->experts / r->groups;
    for (size_t g = 0; g < r->groups; g++)
        score[g] = group_score(r, key + g * size, size);
    for (size_t i = 0; i < r->groups_used; i++)
        taken[largest(score, taken, r->groups)] = true;
    for (size_t e = 0; e < r->experts; e++)
        used[e] = !taken[e / size];
}

static void sort_ascending(uint32_t *x, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && x[k - 1] > x[k]; k--) {
            const uint32_t low = x[k];
            x[k] = x[k - 1];
            x[k - 1] = low;
        }
}

static float sigmoid(float x) { return (float)repro_sigmoid(x); }

static void score_experts(const struct op_route *r, const float *logits, float *score)
{
    for (size_t e = 0; e < r->experts; e++)
        score[e] = r->kind == ROUTER_SIGMOID ? sigmoid(logits[e]) : logits[e];
    if (r->kind == ROUTER_SOFTMAX)
        softmax(score, r->experts);
}

/* Weight of an expert that is about to be chosen, the best one that is not `used`, by ROUTER_SPARSEMIXER. */
static float near_softmax(const struct op_route *r, const float *logits, const bool *used, size_t best)
{
    const float max = logits[best];
    float sum = 0;
    for (size_t e = 0; e < r->experts; e++) {
        const float size = fabsf(logits[e]) > max ? fabsf(logits[e]) : max;
        if (!used[e] && !((max - logits[e]) / size > 2 * r->jitter))
            sum += (float)repro_exp(logits[e] - max);
    }
    return 1 / sum;
}

/* Body of a parallel loop over rows. */
static void route_row(void *arg, size_t i)
{
    const struct expert_job *job = arg;
    const struct op_route *r = &job->op->route;
    const size_t row = job->first + i, n = r->used;
    uint32_t *chosen = (void *)cpu_row(job->step, r->chosen, row);
    float *weight = cpu_row(job->step, r->weight, row), score[MAX_EXPERTS], key[MAX_EXPERTS], sum = 0;
    const float *bias = cpu_floats(r->select_bias, 0), *gain = cpu_floats(r->gain, 0);
    bool used[MAX_EXPERTS] = {false};
    score_experts(r, cpu_row(job->step, job->op->in, row), score);
    for (size_t e = 0; e < r->experts; e++)
        key[e] = score[e] + (bias ? bias[e] : 0);
    if (r->groups > 1)
        drop_groups(r, key, used);
    for (size_t k = 0; k < n; k++) {
        chosen[k] = (uint32_t)largest(key, used, r->experts);
        if (r->kind == ROUTER_SPARSEMIXER)
            score[chosen[k]] = near_softmax(r, key, used, chosen[k]);
        used[chosen[k]] = true;
    }
    sort_ascending(chosen, n);
    for (size_t k = 0; k < n; k++)
        weight[k] = score[chosen[k]];
    if (r->kind == ROUTER_TOPK_SOFTMAX)
        softmax(weight, n);
    for (size_t k = 0; r->kind == ROUTER_TOPK_SIGMOID && k < n; k++)
        weight[k] = sigmoid(weight[k]);
    for (size_t k = 0; k < n; k++)
        sum += weight[k];
    for (size_t k = 0; k < n; k++)
        weight[k] = (r->norm ? weight[k] / (sum + 1e-20f) : weight[k]) * r->scale;
    for (size_t k = 0; gain && k < n; k++)
        weight[k] *= gain[chosen[k]];
}

int cpu_route(struct backend_pass *pass, const struct op *op, const struct op_step *step,
              struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    struct expert_job job = {op, step, rows.first};
    parallel_for(rows.n, 16 * rows.n * op->route.experts * op->route.used, route_row, &job);
    return 0;
}

/* ---- products ---- */

/* The matrix of the i-th group. */
static struct mat group_matrix(const struct op_groups *g, const struct op_matrix *first,
                               const struct device_addr *data, size_t i)
{
    const size_t stride = layout_bytes(first->layout, first->dtype, g->outputs, first->in);
    struct op_matrix own = *first;
    own.data = data ? data[i] : addr_add(first->data, g->expert[i] * stride);
    return cpu_mat(&own);
}

/* weighed = weight * in, for the rows of all groups */
static void weigh_inputs(const struct op_groups *g, const struct op_step *step)
{
    size_t rows = 0;
    for (size_t i = 0; i < g->n; i++)
        rows += g->rows[i];
    for (size_t k = 0; k < rows; k++) {
        const float weight = cpu_row(step, g->weight, 0)[g->choice[k]];
        const float *from = cpu_row(step, g->in, g->in_row[k]);
        float *restrict to = cpu_row(step, g->weighed, k);
        for (size_t j = 0; j < g->product.w.matrix.in; j++)
            to[j] = weight * from[j];
    }
}

static void add_group(struct backend_pass *pass, const struct op_groups *g, const struct op_step *step,
                      size_t i)
{
    const struct op_product *p = &g->product;
    const size_t bias_at = g->expert[i] * g->outputs;
    struct mat *w = &pass->mat[2 * i];
    w[0] = group_matrix(g, &p->w.matrix, g->data, i);
    pass->product[i] = (struct product){.w = &w[0],
                                        .bias = cpu_floats(p->w.bias, bias_at),
                                        .y = cpu_row(step, p->y, 0),
                                        .y_stride = p->y.stride,
                                        .act = p->act,
                                        .limit = p->limit,
                                        .alpha = p->alpha};
    if (!product_has_gate(p))
        return;
    w[1] = group_matrix(g, &p->gate.matrix, g->gate_data, i);
    pass->product[i].gate = &w[1];
    pass->product[i].gate_bias = cpu_floats(p->gate.bias, bias_at);
}

void cpu_run_groups(struct backend_pass *pass, const struct op_groups *g, const struct op_step *step)
{
    const struct op_arg in = g->choice ? g->weighed : g->in;
    const struct product_groups groups = {pass->product, g->rows, g->n, g->choice ? NULL : g->in_row};
    for (size_t i = 0; i < g->n; i++)
        add_group(pass, g, step, i);
    if (g->choice)
        weigh_inputs(g, step);
    gemm_run_groups(pass->expert_gemm, &groups, cpu_row(step, in, 0), in.stride, g->in_rows);
}

/* ---- the sum ---- */

/* sigmoid(x w), in 16 partial sums that are added in pairs */
static float shared_gate(const float *x, const float *w, size_t n)
{
    enum { LANES = 16 };
    float sum[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        sum[i % LANES] += x[i] * w[i];
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return sigmoid(sum[0]);
}

/* Body of a parallel loop over rows. */
static void mix_row(void *arg, size_t i)
{
    const struct expert_job *job = arg;
    const struct op_mix *m = &job->op->mix;
    const size_t row = job->first + i, end = m->first + m->n;
    const uint32_t *pair = job->step->pair + i * m->used;
    const float *weight = m->weighted ? cpu_row(job->step, m->weight, row) : NULL;
    float *sum = cpu_row(job->step, job->op->in, pair[0]), *y = cpu_row(job->step, job->op->out, row);
    for (size_t j = m->first; j < end && weight; j++)
        sum[j] *= weight[0];
    for (size_t k = 1; k < m->used; k++) {
        const float *restrict from = cpu_row(job->step, job->op->in, pair[k]);
        const float by = weight ? weight[k] : 1;
        for (size_t j = m->first; j < end; j++)
            sum[j] += by * from[j];
    }
    if (m->shared_mlp) {
        const float *restrict shared = cpu_row(job->step, m->shared, row);
        const float *router = cpu_floats(m->shared_router, 0);
        const float gate = router ? shared_gate(cpu_row(job->step, m->x, row), router, m->width) : 1;
        for (size_t j = m->first; j < end; j++)
            sum[j] += gate * shared[j];
    }
    const float *bias = cpu_floats(m->bias, 0);
    for (size_t j = m->first; j < end && bias; j++)
        sum[j] += bias[j];
    for (size_t j = m->first; j < end; j++)
        y[j] = m->add ? y[j] + sum[j] : sum[j];
}

int cpu_mix(struct backend_pass *pass, const struct op *op, const struct op_step *step,
            struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    struct expert_job job = {op, step, rows.first};
    parallel_for(rows.n, 2 * rows.n * op->mix.width * (op->mix.used + 1), mix_row, &job);
    return 0;
}
