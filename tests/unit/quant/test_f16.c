/* f16: conversions against the formula of IEEE 754; kernels, which must give bit for bit the same
 * results for f16 weights and KV entries as for the same values in f32. */
#include <string.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "kernel/gemm.h"

/* The value by the formula: sign, 5 bits of exponent, 10 of fraction. */
static double value_of(unsigned h)
{
    const int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

static void test_conversions(void)
{
    size_t wide = 0, back = 0, ties = 0, above = 0, below = 0;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float x = f16_to_f32((f16)h);
        wide +=
            isnan(value_of(h)) ? !isnan(x) : (double)x != value_of(h) || !signbit(x) != !(h & 0x8000);
        back += isnan(x) ? !isnan(f16_to_f32(f16_from_f32(x))) : f16_from_f32(x) != h;
    }
    check(wide == 0 && back == 0, "f16: %zu of 65536 widened wrongly, %zu narrowed wrongly", wide,
          back);
    /* Values halfway between neighbours and just beside; infinity counts as 65536. */
    for (unsigned h = 0; h < 0x7c00; h++) {
        const double next = h + 1 == 0x7c00 ? 65536 : value_of(h + 1);
        const float middle = (float)((value_of(h) + next) / 2);
        ties += f16_from_f32(middle) != h + h % 2 || f16_from_f32(-middle) != (0x8000 | (h + h % 2));
        above += f16_from_f32(nextafterf(middle, INFINITY)) != h + 1;
        below += f16_from_f32(nextafterf(middle, 0)) != h;
    }
    check(ties + above + below == 0, "f16: %zu ties, %zu above and %zu below the middle go wrong", ties,
          above, below);
    check(f16_from_f32(1e9f) == 0x7c00 && f16_from_f32(-INFINITY) == 0xfc00 && f16_from_f32(1e-9f) == 0,
          "f16: overflow and underflow");
}

/* dtype_finite() finds a NaN or infinity at any index, and takes no finite element for one. */
static void test_finite(void)
{
    static const struct {
        enum dtype type;
        /* bits of the largest number, of infinity, and of the sign */
        uint32_t largest, infinite, sign;
    } known[] = {{DTYPE_F32, 0x7f7fffff, 0x7f800000, 0x80000000},
                 {DTYPE_BF16, 0x7f7f, 0x7f80, 0x8000},
                 {DTYPE_F16, 0x7bff, 0x7c00, 0x8000}};
    enum { MOST = 11 };
    unsigned char some[MOST * 4 + 1];
    for (size_t k = 0; k < ARRAY_LEN(known); k++) {
        const size_t size = dtype_size(known[k].type);
        for (size_t n = 0; n <= MOST; n++) {
            for (size_t i = 0; i < MOST; i++)
                memcpy(some + 1 + i * size, &(uint32_t){known[k].largest | (i % 2 ? known[k].sign : 0)},
                       size);
            check(dtype_finite(known[k].type, some + 1, n), "%zu finite of type %zu", n, k);
            for (size_t i = 0; i < MOST; i++)
                for (uint32_t bits = known[k].infinite; bits <= known[k].infinite + 1; bits++) {
                    unsigned char before[4];
                    memcpy(before, some + 1 + i * size, size);
                    memcpy(some + 1 + i * size, &(uint32_t){bits | (n % 2 ? known[k].sign : 0)}, size);
                    check(dtype_finite(known[k].type, some + 1, n) == (i >= n),
                          "%zu of type %zu, number %zu is %x", n, k, i, bits);
                    memcpy(some + 1 + i * size, before, size);
                }
        }
    }
}

/* A matrix in both types, packed: all finite f16 numbers, in turns. */
enum { OUT = 2000, IN = 33, ROWS = 9 };

static f16 half_of(size_t i)
{
    const f16 h = (f16)(i * 40503);
    return (h & 0x7c00) == 0x7c00 ? h & 0x83ff : h;
}

static struct mat matrix(enum dtype type)
{
    static f16 half[OUT * IN];
    static float whole[OUT * IN];
    struct mat mat = {.dtype = type, .layout = LAYOUT_PACKED, .out = OUT, .in = IN};
    mat.in_padded = layout_in(LAYOUT_PACKED, IN);
    void *packed = mem_alloc(round_up(OUT, PACK_OUT) * mat.in_padded, dtype_size(type));
    for (size_t i = 0; i < OUT * IN; i++) {
        half[i] = half_of(i);
        whole[i] = f16_to_f32(half[i]);
    }
    pack_rows(packed, mat.in_padded, type == DTYPE_F16 ? (void *)half : (void *)whole, IN, OUT, IN,
              type);
    mat.data = packed;
    return mat;
}

static void product(const struct kernels *k, const struct mat *w, const float *x, float *y)
{
    struct gemm *gemm;
    struct err err;
    if (!check(gemm_open(&gemm, k, PRECISION_F32, ROWS, IN, &err) == 0, "%s", err.text))
        return;
    gemm_run(gemm, &(struct product){.w = w, .y = y, .y_stride = OUT}, 1, x, IN, ROWS);
    gemm_close(gemm);
}

static void test_products(const struct kernels *k)
{
    static float x[ROWS * IN], half[ROWS * OUT], whole[ROWS * OUT];
    const struct mat narrow = matrix(DTYPE_F16), wide = matrix(DTYPE_F32);
    for (size_t i = 0; i < ROWS * IN; i++)
        x[i] = sinf((float)i);
    product(k, &narrow, x, half);
    product(k, &wide, x, whole);
    check(memcmp(half, whole, sizeof half) == 0, "%s: a product with f16 weights", k->isa);
    float row[IN];
    mat_fetch_row(row, &narrow, 7);
    for (size_t j = 0; j < IN; j++)
        check(row[j] == f16_to_f32(half_of(7 * IN + j)), "element %zu of a packed row", j);
    free((void *)(uintptr_t)narrow.data);
    free((void *)(uintptr_t)wide.data);
}

enum { MAX_D = 64, TILES = 5, QUERIES = 3 };

/* context[QUERIES][d] over TILES tiles of K and V in one type. */
static void attend(const struct kernels *k, size_t d, enum dtype type, const char *keys,
                   const char *values, float *context)
{
    static float q[MAX_D * QUERIES],
        space[ATTEND_BLOCK * (MAX_D + QUERIES) + NR] __attribute__((aligned(64)));
    float max[QUERIES] = {-INFINITY, -INFINITY, -INFINITY}, sum[QUERIES * NR] = {0};
    const size_t seen[] = {TILES * ATTEND_TILE - 2, TILES * ATTEND_TILE - 1, TILES * ATTEND_TILE};
    const size_t row = d * dtype_size(type);
    const char *tile_k[TILES], *tile_v[TILES];
    for (size_t t = 0; t < TILES; t++) {
        tile_k[t] = keys + t * ATTEND_TILE * row;
        tile_v[t] = values + t * ATTEND_TILE * row;
    }
    for (size_t i = 0; i < d * QUERIES; i++)
        q[i] = cosf((float)i) / 8;
    memset(context, 0, QUERIES * d * sizeof *context);
    k->attend(&(struct attend){.d = d,
                               .d_v = d,
                               .k_type = type,
                               .v_type = type,
                               .k_stride = row,
                               .v_stride = row,
                               .tiles = TILES,
                               .k = tile_k,
                               .v = tile_v,
                               .queries = QUERIES,
                               .q = q,
                               .q_stride = QUERIES,
                               .kv_end = seen,
                               .max = max,
                               .sum = sum,
                               .context = context,
                               .scratch = space});
}

/* Head sizes d: of whole registers and others. */
static void test_attention(const struct kernels *k, size_t d)
{
    enum { N = TILES * ATTEND_TILE * MAX_D };
    static f16 half[2][N];
    static float whole[2][N], narrow[QUERIES * MAX_D], wide[QUERIES * MAX_D];
    for (size_t i = 0; i < 2 * N; i++) {
        half[i / N][i % N] = f16_from_f32(3 * sinf((float)i * 1.7f));
        whole[i / N][i % N] = f16_to_f32(half[i / N][i % N]);
    }
    attend(k, d, DTYPE_F16, (const char *)half[0], (const char *)half[1], narrow);
    attend(k, d, DTYPE_F32, (const char *)whole[0], (const char *)whole[1], wide);
    check(memcmp(narrow, wide, QUERIES * d * sizeof *narrow) == 0 && wide[0] != 0,
          "%s: attention over f16 rows of %zu", k->isa, d);
}

int main(void)
{
    kernels_setup();
    threads_set(2);
    test_conversions();
    test_finite();
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable()) {
            test_products(kernel_sets[i]);
            test_attention(kernel_sets[i], 40);
            test_attention(kernel_sets[i], MAX_D);
        }
    return check_result();
}
