/* Scales of the elements of keys. */
#include "model/key_scales.h"

#include "base/mem.h"

enum { MOST_EXPONENT = 8 };

/* The sum of squares of an element's gain and of that which it is rotated with. */
static double square(const float *gain, size_t i, size_t pairs)
{
    const double own = (double)gain[i], other = i < pairs       ? (double)gain[i + pairs]
                                                : i < 2 * pairs ? (double)gain[i - pairs]
                                                                : 0;
    return own * own + other * other;
}

/* The integer next to log2(x) / n, the higher one at halves, n even; 0 for x that is 0 or not finite. */
static int nearest_root(double x, int n)
{
    int e;
    if (!(x > 0) || !isfinite(x))
        return 0;
    frexp(x, &e); /* 2^(e - 1) <= x < 2^e */
    const int above = e - 1 + n / 2;
    return (above - (above < 0 ? n - 1 : 0)) / n;
}

void key_exponents(int *exponent, const float *q, const float *k, size_t d, size_t pairs)
{
    double before = 0, after = 0;
    for (size_t i = 0; i < d; i++) {
        const double own = (double)k[i];
        const int e = nearest_root(square(q, i, pairs) / square(k, i, pairs), 4);
        exponent[i] = e < -MOST_EXPONENT ? -MOST_EXPONENT : e > MOST_EXPONENT ? MOST_EXPONENT : e;
        before += own * own;
        after += ldexp(own * own, 2 * exponent[i]);
    }
    const int all = nearest_root(after / before, 2);
    for (size_t i = 0; i < d; i++)
        exponent[i] -= all;
}

/* True if norms of heads have gains, and nothing else, in all layers, none of which attends to another's keys. */
static bool has_gains(const struct config *c)
{
    bool own = c->qk_norm == QK_NORM_HEAD && c->qk_norm_affine;
    for (size_t l = 0; l < c->layers; l++)
        own = own && (!c->plan[l].attends || c->plan[l].owns_kv);
    return own;
}

/* Scales the gains of a layer into to[2 d]; false: all scales are 1. */
static bool scale_layer(struct layer *layer, float *to, int *exponent, size_t d, size_t pairs)
{
    const float *q = layer->q_norm.gain, *k = layer->k_norm.gain;
    bool any = false;
    if (!q || !k || layer->q_norm.bias || layer->k_norm.bias)
        return false;
    key_exponents(exponent, q, k, d, pairs);
    for (size_t i = 0; i < d; i++) {
        any = any || exponent[i];
        to[i] = ldexpf(q[i], -exponent[i]);
        to[d + i] = ldexpf(k[i], exponent[i]);
    }
    if (any) {
        layer->q_norm.gain = to;
        layer->k_norm.gain = to + d;
    }
    return any;
}

int key_scales_apply(struct weights *weights, const struct config *config, float **gains,
                     struct err *err)
{
    size_t n = 0;
    bool any = false;
    *gains = NULL;
    for (size_t l = 0; has_gains(config) && l < config->layers; l++)
        n += config->plan[l].head_dim;
    if (!n)
        return 0;
    AUTO(free_auto) int *exponent = mem_alloc(n, sizeof *exponent);
    float *to = mem_alloc(n, 2 * sizeof *to);
    *gains = to;
    if (!to || !exponent)
        return err_no_memory(err, "the gains of %zu layers", config->layers);
    for (size_t l = 0; l < config->layers; l++) {
        const struct layer_plan *plan = &config->plan[l];
        const size_t pairs = plan->rope == LAYER_NOPE ? 0 : config->rope[plan->rope].dim / 2;
        if (scale_layer(&weights->layer[l], to, exponent, plan->head_dim, pairs)) {
            any = true;
            to += 2 * plan->head_dim;
        }
    }
    if (!any) {
        free(*gains);
        *gains = NULL;
    }
    return 0;
}
