/* Dense layers after pooling, on the host: few products per text beside those of its tokens. */
#include "decode/pooled_head.h"

#include "base/repro_math.h"

enum { CHUNK = QK_SUPER }; /* weights that are converted at a time */

size_t pooled_head_work(const struct config *config)
{
    return config->pooled_dense + config_pooled_width(config);
}

/* y[out] = W x + bias */
static void dense(const struct linear *layer, const double *x, double *y)
{
    const struct mat *w = &layer->weight;
    float weight[CHUNK];
    for (size_t o = 0; o < w->out; o++) {
        double sum = 0;
        for (size_t k = 0, some; k < w->in; k += some) {
            some = size_min(CHUNK, w->in - k);
            mat_fetch(weight, w, o, k, some);
            for (size_t i = 0; i < some; i++)
                sum += (double)weight[i] * x[k + i];
        }
        y[o] = layer->bias ? sum + (double)layer->bias[o] : sum;
    }
}

static double activate(enum pooled_activation act, double x)
{
    switch (act) {
    case POOLED_PLAIN: break;
    case POOLED_TANH: return repro_tanh(x);
    case POOLED_GELU: return x / 2 * (1 + erf(x * M_SQRT1_2));
    case POOLED_RELU: return x < 0 ? 0 : x;
    }
    return x;
}

/* LayerNorm, in place. */
static void normalize(const struct norm_weights *w, double eps, double *x, size_t n)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / sqrt(square / (double)n + eps);
    for (size_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) * scale * (w->gain ? (double)w->gain[i] : 1) +
               (w->bias ? (double)w->bias[i] : 0);
}

void pooled_head_apply(const struct model *model, const double *x, double *work, float *y)
{
    const struct config *c = &model->config;
    const struct weights *w = &model->weights;
    double *out = work + c->pooled_dense;
    if (c->pooled_dense) {
        dense(&w->pooled_dense, x, work);
        for (size_t i = 0; i < c->pooled_dense; i++)
            work[i] = activate((enum pooled_activation)c->pooled_activation, work[i]);
        if (c->pooled_norm)
            normalize(&w->pooled_norm, c->norm_eps, work, c->pooled_dense);
        x = work;
    }
    if (c->pooled_out) {
        dense(&w->pooled_out, x, out);
        x = out;
    }
    for (size_t i = 0; i < config_pooled_width(c); i++)
        y[i] = (float)x[i];
}
