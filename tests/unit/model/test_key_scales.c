/* Scales of keys: exponents that were computed by hand, gains whose products keep their bits, and models without any. */
#include <stdlib.h>
#include <string.h>

#include "model/key_scales.h"
#include "tests/unit/check.h"

enum { D = 6, PAIRS = 2, LAYERS = 2 };

static void test_exponents(void)
{
    /* Pairs (0, 2) and (1, 3): log2(32 / 2) / 4 = 1 and log2(2 / 2) / 4 = 0; alone 4: log2(1 / 4^6) / 4 = -3, and 5: no
     * finite one. Squares of K: 4 + 4^6 = 4100 before, 2 * 4 + 2 + 4^6 / 4^3 = 74 behind: log2(74 / 4100) / 2 = -2.9. */
    const float q[D] = {4, 1, -4, 1, 1, 1}, k[D] = {1, -1, 1, 1, 64, 0};
    const int want[D] = {4, 3, 4, 3, 0, 3};
    int found[D];
    key_exponents(found, q, k, D, PAIRS);
    check(memcmp(found, want, sizeof want) == 0, "exponents %d %d %d %d %d %d", found[0], found[1],
          found[2], found[3], found[4], found[5]);
    /* log2(2 / 2^-79) / 4 = 20 and log2(1e-40) / 4 = -33, limited to 8 and -8. Squares of K: 2 before and 2^-15 behind, so
     * that all are 8 higher. */
    const float wide[D] = {1, 1, 1, 1, 1e-20f, 1e-20f},
                small[D] = {0x1p-40f, 0x1p-40f, 0x1p-40f, 0x1p-40f, 1, 1};
    key_exponents(found, wide, small, D, PAIRS);
    for (size_t i = 0; i < D; i++)
        check(found[i] == (i < 4 ? 16 : 0), "limited exponent %zu is %d", i, found[i]);
}

/* Applies scales to layers with the gains q and k, which rotate PAIRS pairs. */
static float *apply(struct layer layer[LAYERS], const float *q, const float *k, bool owns)
{
    const struct rope_plan rope[2] = {{.dim = 2 * PAIRS}, {.dim = 2 * PAIRS}};
    const struct layer_plan plan[LAYERS] = {{.attends = true, .owns_kv = true, .head_dim = D},
                                            {.attends = true, .owns_kv = owns, .head_dim = D}};
    const struct config config = {
        .layers = LAYERS, .qk_norm = QK_NORM_HEAD, .qk_norm_affine = true, .rope = rope, .plan = plan};
    struct weights weights = {.layer = layer};
    float *gains;
    struct err err;
    for (size_t l = 0; l < LAYERS; l++)
        layer[l] = (struct layer){.q_norm.gain = q, .k_norm.gain = k};
    check(key_scales_apply(&weights, &config, &gains, &err) == 0, "no scales");
    return gains;
}

static void test_apply(void)
{
    const float one[D] = {1, 1, 1, 1, 1, 1}, q[D] = {4.1f, 1, -3.9f, 1, 0.3f, 0},
                k[D] = {1.3f, -1, 1, 1.7f, 60, 0.1f};
    struct layer layer[LAYERS];
    float *gains = apply(layer, q, k, true);
    check(gains != NULL, "uneven gains are not scaled");
    for (size_t i = 0; gains && i < LAYERS * D; i++) {
        const float *own_q = layer[i / D].q_norm.gain, *own_k = layer[i / D].k_norm.gain;
        check(own_q != q && own_q[i % D] * own_k[i % D] == q[i % D] * k[i % D], "the product of %zu",
              i);
    }
    free(gains);
    check(!apply(layer, one, one, true) && layer[1].q_norm.gain == one, "even gains are scaled");
    check(!apply(layer, q, k, false) && layer[0].k_norm.gain == k, "shared keys are scaled");
}

int main(void)
{
    test_exponents();
    test_apply();
    return check_result();
}
