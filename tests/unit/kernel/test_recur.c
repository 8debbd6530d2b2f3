/* Kernels of layers with recurrent state, of every set that the machine can run, against their formulas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/kernel.h"
#include "tests/unit/check.h"

static uint64_t random_state;

static float *random_floats(size_t n)
{
    float *x = mem_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(check_random(&random_state) % 2001) / 1000 - 1;
    return x;
}

/* A step of the recurrence against its formula, without the delta rule, with it, and with decays by row; in and out of place;
 * convolution and gate. */
static void test_recurrence(const struct kernels *k)
{
    enum { KEYS = 37, W = RECUR_WIDTH, TAPS = 4, N = 83 };
    float *s = random_floats(KEYS * W), *after = mem_alloc(KEYS * W, sizeof *s), y[W], out[N];
    float *key = random_floats(KEYS), *q = random_floats(KEYS), *v = random_floats(W);
    float *x = random_floats(TAPS * N), *w = random_floats(TAPS * N), *bias = random_floats(N);
    const float *const row[] = {x, x + 2 * N, x + N, x + 3 * N};
    for (int delta = 0; delta < 3; delta++) {
        const struct recur step = {after, s,    KEYS,      key, q, v, delta == 2 ? x : NULL,
                                   0.8f,  0.3f, delta > 0, y};
        struct recur again = step;
        double worst = 0;
        k->recur(&step);
        for (size_t j = 0; j < W; j++) {
            double memory = 0, d = v[j], want = 0;
            for (size_t i = 0; i < KEYS; i++)
                memory += (double)(delta == 2 ? x[i] : 0.8f) * s[i * W + j] * key[i];
            d = delta ? 0.3f * (d - memory) : d;
            for (size_t i = 0; i < KEYS; i++) {
                const double next = (delta == 2 ? x[i] : 0.8f) * s[i * W + j] + key[i] * d;
                worst = fmax(worst, fabs(next - after[i * W + j]));
                want += next * q[i];
            }
            worst = fmax(worst, fabs(want - y[j]));
        }
        check(worst < 1e-4, "%s: recur, delta %d: off by %g", k->isa, delta, worst);
        float *in_place = mem_alloc(KEYS * W, sizeof *s);
        memcpy(in_place, s, KEYS * W * sizeof *s);
        again.state = in_place;
        again.before = in_place;
        again.q = NULL;
        k->recur(&again);
        check(memcmp(in_place, after, KEYS * W * sizeof *s) == 0, "%s: recur in place differs", k->isa);
        free(in_place);
    }
    double worst = 0;
    k->convolve(out, row, TAPS, w, N, bias, N, EPILOGUE_SILU);
    for (size_t j = 0; j < N; j++) {
        double sum = bias[j];
        for (size_t t = 0; t < TAPS; t++)
            sum += (double)w[t * N + j] * row[t][j];
        worst = fmax(worst, fabs(sum / (1 + exp(-sum)) - out[j]));
    }
    k->gate(out, x, w, N, EPILOGUE_SIGMOID);
    for (size_t j = 0; j < N; j++)
        worst = fmax(worst, fabs(x[j] / (1 + exp(-w[j])) - out[j]));
    check(worst < 1e-5, "%s: convolve or gate: off by %g", k->isa, worst);
    free(s), free(after), free(key), free(q), free(v), free(x), free(w), free(bias);
}

int main(void)
{
    kernels_setup();
    random_state = check_state(check_seed(1));
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable())
            test_recurrence(kernel_sets[i]);
    return check_result();
}
