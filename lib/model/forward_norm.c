/* RMSNorm and LayerNorm over rows of activations, and factors of rows. */
#include "model/forward_norm.h"

#include "base/threads.h"

struct norm_job {
    const struct forward *f;
    float *y;
    const float *x;
    size_t width;
    const struct norm_weights *weights;
    size_t heads, first; /* row i has gain[first + i % heads][width] */
};

static void norm_row(void *arg, size_t i)
{
    const struct norm_job *job = arg;
    const struct config *c = &job->f->model->config;
    const struct norm_weights *w = job->weights;
    const float eps = (float)c->norm_eps;
    const size_t n = job->width, at = (job->first + i % job->heads) * n;
    const float *gain = w->gain ? w->gain + at : NULL, *bias = w->bias ? w->bias + at : NULL;
    if (c->norm == NORM_RMS)
        job->f->kernels->rmsnorm(job->y + i * n, job->x + i * n, n, gain, eps);
    else
        job->f->kernels->layernorm(job->y + i * n, job->x + i * n, n, gain, bias, eps);
}

void norm_each(const struct forward *f, float *y, const float *x, size_t rows, size_t width,
               const struct norm_weights *weights)
{
    struct norm_job job = {f, y, x, width, weights, 1, 0};
    parallel_for(rows, 8 * rows * width, norm_row, &job);
}

void norm_heads(const struct forward *f, float *y, const float *x, size_t rows, size_t heads,
                size_t width, const struct norm_weights *weights, size_t first)
{
    struct norm_job job = {f, y, x, width, weights, heads, first};
    parallel_for(rows * heads, 8 * rows * heads * width, norm_row, &job);
}

void norm_rows(const struct forward *f, float *y, const float *x, struct row_range rows,
               const struct norm_weights *weights)
{
    const size_t width = f->model->config.hidden, at = rows.first * width;
    norm_each(f, y + at, x + at, rows.n, width, weights);
}

void scale_rows(float *x, struct row_range rows, size_t width, double factor)
{
    x += rows.first * width;
    for (size_t i = 0; factor != 0 && i < rows.n * width; i++)
        x[i] *= (float)factor;
}
