/* AVX512-BF16: the kernel set bf16. vdpbf16ps adds the products of two pairs of bf16 to an f32
 * lane; each sum is rounded once, denormals are flushed. */
#include "kernel/x86/attend/attend_few_bf16.h"

extern const struct kernels kernels_vnni;

static bool bf16_usable(void) { return kernels_vnni.usable() && __builtin_cpu_supports("avx512bf16"); }

/* The micro-kernel: multiplies R activation rows by C weight blocks from `block` on. Each sum adds
 * up pairs of inputs in their order. */
INLINE void pair_tile(const int R, const int C, float *y, const bf16 *x, size_t x_stride,
                      const struct panel *panel, size_t block, struct panel_prefetch prefetch)
{
    const char *w = panel->w + block * panel->block_bytes;
    __m512 sum[MR][PANEL_BLOCKS];
    for (int i = 0; i < R; i++)
        for (int c = 0; c < C; c++)
            sum[i][c] =
                panel->accumulate ? _mm512_loadu_ps(y + i * PANEL_WIDTH + c * NR) : _mm512_setzero_ps();
    for (size_t k = 0; k < panel->kc; k += 2) {
        const size_t at = k * NR * sizeof(bf16);
        __m512bh weights[PANEL_BLOCKS];
        prefetch_next(&prefetch, at, 2 * NR * sizeof(bf16));
        for (int c = 0; c < C; c++)
            weights[c] = (__m512bh)_mm512_loadu_si512(w + c * panel->block_bytes + at);
        for (int i = 0; i < R; i++) {
            const __m512bh pair = pair_set1(x + i * x_stride + k);
            for (int c = 0; c < C; c++)
                sum[i][c] = _mm512_dpbf16_ps(sum[i][c], pair, weights[c]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int c = 0; c < C; c++)
            _mm512_storeu_ps(y + i * PANEL_WIDTH + c * NR, sum[i][c]);
}

/* Multiplies R activation rows by all blocks of a panel. */
INLINE void pair_row(const int R, float *y, const bf16 *x, size_t x_stride, const struct panel *w,
                     struct panel_prefetch prefetch)
{
    if (w->blocks == PANEL_BLOCKS) {
        pair_tile(R, PANEL_BLOCKS, y, x, x_stride, w, 0, prefetch);
        return;
    }
    size_t c = 0;
    for (; c + 2 <= w->blocks; c += 2)
        pair_tile(R, 2, y + c * NR, x, x_stride, w, c, c ? (struct panel_prefetch){{0}} : prefetch);
    for (; c < w->blocks; c++)
        pair_tile(R, 1, y + c * NR, x, x_stride, w, c, (struct panel_prefetch){{0}});
}

static void panel_bf16(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, MR);
    size_t tile = 0;
#define TILE                                                                                           \
    const struct panel_prefetch prefetch = panel_prefetch_of(w, tile++, tiles);                        \
    pair_row(R, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, prefetch)
    FOR_TILES(rows, MR, TILE);
#undef TILE
}

static void attend_bf16(const struct attend *a)
{
    static const struct attend_phases few_phases = {score_few, softmax_bf16, value_few};
    attend_in_bf16(a, panel_bf16, few_rows(a) ? &few_phases : &bf16_phases);
}

const struct kernels kernels_bf16 = {
    .isa = "bf16",
    .summary = "AVX512-BF16",
    .usable = bf16_usable,
    .base = &kernels_vnni,
    .peak = {[PEAK_BF16] = &peak_bf16},
    .panel_bf16 = panel_bf16,
    .attend_bf16 = attend_bf16,
};
