/* The BF16 extension of Armv8.6-A: the kernel set bf16. BFMMLA adds to 2 x 2 f32 sums the products of
 * two outputs' and two rows' bf16, 4 inputs each. Lanes are output 0 times row 0, output 0 times row 1,
 * output 1 times row 0, output 1 times row 1. */
#include "kernel/arm/neon_begin.h"
#include "kernel/arm/arm_cpu.h"
#include "kernel/template/attend_bf16.h"

extern const struct kernels kernels_i8mm;

static bool bfmmla_usable(void) { return kernels_i8mm.usable() && arm_has_bf16(); }

enum { PAIRS = MR / 2 }; /* pairs of rows whose sums of NR outputs fit in registers */

INLINE bfloat16x8_t bf16_of(vu x) { return vreinterpretq_bf16_u32((uint32x4_t)x); }

INLINE vf matmul(vf sum, vu w, vu x)
{
    return (vf)vbfmmlaq_f32((float32x4_t)sum, bf16_of(w), bf16_of(x));
}

/* 4 inputs of each of two rows. */
INLINE vu load_rows(const bf16 *x, size_t x_stride)
{
    uint64_t row[2];
    memcpy(&row[0], x, sizeof row[0]);
    memcpy(&row[1], x + x_stride, sizeof row[1]);
    const uint64x2_t both = vcombine_u64(vcreate_u64(row[0]), vcreate_u64(row[1]));
    return (vu)both;
}

/* The micro-kernel: multiplies P pairs of activation rows by a weight block. Each sum adds up groups of
 * 4 inputs in their order. */
INLINE void matmul_tile(const int P, float *y, const bf16 *x, size_t x_stride,
                        const struct panel *panel, size_t block, struct panel_prefetch prefetch)
{
    const char *w = panel->w + block * panel->block_bytes;
    vf sum[PAIRS][NR_VECS][2];
    UNROLL(for (int p = 0; p < P; p++))
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    {
        const float *at = y + 2 * p * PANEL_WIDTH + block * NR + g * VW;
        const vf a = panel->accumulate ? vf_load(at) : (vf){0};
        const vf b = panel->accumulate ? vf_load(at + PANEL_WIDTH) : (vf){0};
        sum[p][g][0] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        sum[p][g][1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    }
    for (size_t k = 0; k < panel->kc; k += 4) {
        const size_t at = k * NR * sizeof(bf16);
        vu rows[PAIRS];
        prefetch_next(&prefetch, at, 4 * NR * sizeof(bf16));
        UNROLL(for (int p = 0; p < P; p++))
        rows[p] = load_rows(x + 2 * p * x_stride + k, x_stride);
        UNROLL(for (int g = 0; g < NR_VECS; g++))
        {
            const vu first = vu_load(w + at + g * VW * 4);
            const vu second = vu_load(w + at + 2 * NR * sizeof(bf16) + g * VW * 4);
            const vu low = __builtin_shufflevector(first, second, 0, 4, 1, 5);
            const vu high = __builtin_shufflevector(first, second, 2, 6, 3, 7);
            UNROLL(for (int p = 0; p < P; p++))
            {
                sum[p][g][0] = matmul(sum[p][g][0], low, rows[p]);
                sum[p][g][1] = matmul(sum[p][g][1], high, rows[p]);
            }
        }
    }
    UNROLL(for (int p = 0; p < P; p++))
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    {
        float *at = y + 2 * p * PANEL_WIDTH + block * NR + g * VW;
        vf_store(at, __builtin_shufflevector(sum[p][g][0], sum[p][g][1], 0, 2, 4, 6));
        vf_store(at + PANEL_WIDTH, __builtin_shufflevector(sum[p][g][0], sum[p][g][1], 1, 3, 5, 7));
    }
}

static void panel_bf16(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w)
{
    const size_t pairs = div_up(rows, 2), tiles = div_up(pairs, PAIRS);
    size_t tile = 0;
#define TILE                                                                                           \
    const struct panel_prefetch prefetch = panel_prefetch_of(w, tile++, tiles);                        \
    for (size_t c = 0; c < w->blocks; c++)                                                             \
    matmul_tile(R, y + 2 * i * PANEL_WIDTH, x + 2 * i * x_stride, x_stride, w, c,                      \
                c ? (struct panel_prefetch){{0}} : prefetch)
    FOR_TILES(pairs, PAIRS, TILE);
#undef TILE
}

static void attend_bf16(const struct attend *a) { attend_in_bf16(a, panel_bf16, &bf16_phases); }

const struct kernels kernels_bf16 = {
    .isa = "bf16",
    .summary = "bf16 matrix products",
    .usable = bfmmla_usable,
    .base = &kernels_i8mm,
    .peak = {[PEAK_BF16] = &peak_bf16},
    .panel_bf16 = panel_bf16,
    .attend_bf16 = attend_bf16,
};
