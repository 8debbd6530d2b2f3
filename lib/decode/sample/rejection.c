/* Speculative sampling by rejection. */
#include "decode/sample/rejection.h"

#include "base/mem.h"

/* A remaining probability mass below this is rounding error. */
#define NEGLIGIBLE 1e-12

int verifier_open(struct verifier *v, size_t vocab, struct err *err)
{
    *v = (struct verifier){mem_zalloc(vocab, sizeof *v->p), mem_zalloc(vocab, sizeof *v->q)};
    if (v->p && v->q)
        return 0;
    verifier_close(v);
    return err_no_memory(err, "distributions over %zu tokens", vocab);
}

void verifier_close(struct verifier *v)
{
    free(v->p);
    free(v->q);
    *v = (struct verifier){0};
}

static double scatter_weights(double *weight, const struct candidate *from, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += weight[from[i].id] = from[i].p;
    return sum;
}

static double sum_of(const double *weight, const struct candidate *of, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += weight[of[i].id];
    return sum;
}

static void clear_weights(double *weight, const struct candidate *of, size_t n)
{
    for (size_t i = 0; i < n; i++)
        weight[of[i].id] = 0;
}

/* Draws one of the ids of[0..n), each with probability weight[id] / sum; u is uniform in [0, 1). */
static uint32_t draw_weighted(const double *weight, const struct candidate *of, size_t n, double sum,
                              double u)
{
    double at = 0;
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (weight[of[i].id] <= 0)
            continue;
        last = i;
        at += weight[of[i].id];
        if (u * sum < at)
            break;
    }
    return of[last].id;
}

/* After a rejection: sets v->p to max(0, p - q) of the normalised p and q; returns its sum. */
static double subtract_draft(struct verifier *v, const struct candidate *p, size_t n_p, double p_sum,
                             double q_sum)
{
    double sum = 0;
    for (size_t i = 0; i < n_p; i++) {
        const double left = v->p[p[i].id] / p_sum - v->q[p[i].id] / q_sum;
        sum += v->p[p[i].id] = left > 0 ? left : 0;
    }
    return sum;
}

size_t rejection_verify(struct verifier *v, const struct candidate *p, size_t n_p,
                        const uint32_t *child, size_t n, const struct candidate *q, size_t n_q,
                        struct draws *draws, uint32_t *id)
{
    double p_sum = scatter_weights(v->p, p, n_p), q_sum = scatter_weights(v->q, q, n_q);
    size_t i = 0;
    for (; i < n; i++) {
        const uint32_t x = child[i];
        const double q_x = n_q ? v->q[x] / q_sum : 1, u = draws_next(draws);
        if (u * q_x < v->p[x] / p_sum)
            break;
        double left;
        if (n_q) {
            left = subtract_draft(v, p, n_p, p_sum, q_sum);
            v->q[x] = 0;
            q_sum = sum_of(v->q, q, n_q);
        } else {
            v->p[x] = 0;
            left = sum_of(v->p, p, n_p);
        }
        if (left <= NEGLIGIBLE) /* p and q are equal: x was rejected by rounding error alone */
            break;
        p_sum = left;
        if (n_q && q_sum <= NEGLIGIBLE) {
            i = n;
            break;
        }
    }
    *id = i < n ? child[i] : draw_weighted(v->p, p, n_p, p_sum, draws_next(draws));
    clear_weights(v->p, p, n_p);
    clear_weights(v->q, q, n_q);
    return i;
}
