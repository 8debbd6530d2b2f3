/* A product whose gate matrix has another type than the up matrix must equal, bit for bit, the two
 * products run one by one, in every kernel set. Activations are quantised to int8 if both types
 * need the same group size; else both matrices are dequantised. */
#include <math.h>
#include "tests/unit/quant_ref.h"
#include "kernel/gemm.h"

enum { OUT = 50, IN = 300, IN_PADDED = 320, MOST_ROWS = 19, TYPES = ARRAY_LEN(quant_refs) + 2 };

/* Matrices of random values, one of every type for `up` and for `gate`. */
static struct gate_case {
    struct mat mat;
    unsigned char bytes[QUANT_MOST_OUT * IN_PADDED * 4 + 4096] __attribute__((aligned(64)));
} up[TYPES], gate[TYPES];

static float x[MOST_ROWS * IN];

static const struct quant_ref *ref_of(enum dtype type)
{
    for (size_t i = 0; i < ARRAY_LEN(quant_refs); i++)
        if (quant_refs[i].type == type)
            return &quant_refs[i];
    return NULL;
}

static void draw(struct gate_case *w, enum dtype type)
{
    static struct quant_matrix quant;
    static float value[OUT * IN];
    static bf16 narrow[OUT * IN];
    const struct quant_ref *ref = ref_of(type);
    w->mat = (struct mat){type, LAYOUT_PACKED, OUT, IN, IN_PADDED, w->bytes};
    if (ref) {
        quant_draw(&quant, ref, OUT, IN, DRAW_ANY);
        put_packed(w->bytes, &quant);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(value); i++) {
        value[i] = quant_uniform();
        narrow[i] = bf16_from_f32(value[i]);
    }
    const void *rows = type == DTYPE_BF16 ? (const void *)narrow : value;
    pack_rows(w->bytes, IN_PADDED, rows, IN, OUT, IN, type);
}

static void run(const struct kernels *k, enum precision precision, struct product p, float *y,
                size_t rows)
{
    struct gemm *gemm;
    struct err err;
    p.y = y;
    p.y_stride = OUT;
    if (!check(gemm_open(&gemm, k, precision, rows, IN, &err) == 0, "%s", err.text))
        return;
    gemm_run(gemm, &p, 1, x, IN, rows);
    gemm_close(gemm);
}

/* Number of inputs that share a scale when activations become int8: a group or all of them; 0: the
 * type is not quantised. */
static size_t group_of(enum dtype type)
{
    return !dtype_is_quantized(type) ? 0 : type == DTYPE_Q8_CHANNEL ? IN : 32;
}

static void test_pair(const struct kernels *k, const struct mat *u, const struct mat *g,
                      enum precision precision, size_t rows)
{
    static float both[MOST_ROWS * OUT], one[MOST_ROWS * OUT], other[MOST_ROWS * OUT];
    const bool alike = group_of(u->dtype) && group_of(u->dtype) == group_of(g->dtype);
    const enum precision alone = alike ? precision : PRECISION_F32;
    run(k, precision, (struct product){.w = u, .gate = g, .act = EPILOGUE_RELU}, both, rows);
    run(k, alone, (struct product){.w = u}, one, rows);
    run(k, alone, (struct product){.w = g, .act = EPILOGUE_RELU}, other, rows);
    bool same = true, any = false;
    for (size_t i = 0; i < rows * OUT; i++) {
        same &= both[i] == one[i] * other[i];
        any |= both[i] != 0;
    }
    check(same && any, "%s: %s with a gate of %s at %s, %zu rows: other products", k->isa,
          dtype_name(u->dtype), dtype_name(g->dtype), precision_name(precision), rows);
}

/* The clamped SwiGLU of gpt-oss, of products that are partly beyond its limit. */
static void test_clamped(const struct kernels *k, const struct mat *u, const struct mat *g)
{
    static float both[MOST_ROWS * OUT], one[MOST_ROWS * OUT], other[MOST_ROWS * OUT];
    const float limit = 0.25f, alpha = 1.7f;
    size_t clamped = 0;
    double worst = 0;
    run(k, PRECISION_F32, (struct product){.w = u}, one, MOST_ROWS);
    run(k, PRECISION_F32, (struct product){.w = g}, other, MOST_ROWS);
    run(k, PRECISION_F32,
        (struct product){
            .w = u, .gate = g, .act = EPILOGUE_CLAMPED_SWIGLU, .limit = limit, .alpha = alpha},
        both, MOST_ROWS);
    for (size_t i = 0; i < MOST_ROWS * OUT; i++) {
        const double a = fmin(other[i], limit), b = fmax(-limit, fmin(one[i], limit));
        clamped += a != (double)other[i] || b != (double)one[i];
        worst = fmax(worst, fabs((double)both[i] - (b + 1) * a / (1 + exp(-(double)alpha * a))));
    }
    check(worst < 1e-6 && clamped > MOST_ROWS * OUT / 10 && clamped < MOST_ROWS * OUT,
          "%s: clamped SwiGLU, %zu of %d clamped, is off by %g", k->isa, clamped, MOST_ROWS * OUT,
          worst);
}

/* A factor of gates: one of 1/4 is exact. */
static void test_scaled(const struct kernels *k, const struct mat *u, const struct mat *g)
{
    static float both[MOST_ROWS * OUT], one[MOST_ROWS * OUT], other[MOST_ROWS * OUT];
    bool same = true, any = false;
    run(k, PRECISION_F32, (struct product){.w = u}, one, MOST_ROWS);
    run(k, PRECISION_F32, (struct product){.w = g, .act = EPILOGUE_RELU}, other, MOST_ROWS);
    run(k, PRECISION_F32,
        (struct product){.w = u, .gate = g, .act = EPILOGUE_RELU, .gate_scale = 0.25f}, both,
        MOST_ROWS);
    for (size_t i = 0; i < MOST_ROWS * OUT; i++) {
        same &= both[i] == one[i] * (0.25f * other[i]);
        any |= both[i] != 0;
    }
    check(same && any, "%s: gates with a factor: other products", k->isa);
}

static void test_set(const struct kernels *k)
{
    test_scaled(k, &up[0].mat, &gate[1].mat);
    test_clamped(k, &up[0].mat, &gate[1].mat);
    for (size_t u = 0; u < TYPES; u++)
        for (size_t g = 0; g < TYPES; g++)
            if (u != g) {
                test_pair(k, &up[u].mat, &gate[g].mat, PRECISION_F32, 3);
                test_pair(k, &up[u].mat, &gate[g].mat, PRECISION_INT8, 3);
                test_pair(k, &up[u].mat, &gate[g].mat, PRECISION_INT8, MOST_ROWS);
            }
}

static void draw_all(void)
{
    static const enum dtype wide[] = {DTYPE_F32, DTYPE_BF16};
    for (size_t i = 0; i < TYPES; i++) {
        const enum dtype type = i < ARRAY_LEN(wide) ? wide[i] : quant_refs[i - ARRAY_LEN(wide)].type;
        draw(&up[i], type);
        draw(&gate[i], type);
    }
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = quant_uniform();
}

int main(void)
{
    quant_state = check_state(check_seed(1));
    kernels_setup();
    draw_all();
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable() && !kernel_sets[i]->load)
            test_set(kernel_sets[i]);
    return check_result();
}
