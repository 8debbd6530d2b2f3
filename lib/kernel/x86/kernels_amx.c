/* AMX-BF16: the kernel set amx. tdpbf16ps adds the product of a 16 x 32 tile of activations and a
 * 32 x 16 tile of weights to a 16 x 16 tile of sums. A tile of weights is 1 KiB of a packed block,
 * read in place. With fewer than 16 activation rows, tiles are as high as there are rows. */
#ifndef AMX_HEADER /* in emulated tiles' tests also plain C for the rest */
#include "kernel/x86/avx512_begin.h"
#endif
#include "kernel/template/attend_bf16.h"
#include "kernel/x86/amx_tiles.h"

extern const struct kernels kernels_vnni, kernels_int8_amx, kernels_amx;

enum { TILE_K = 32 }; /* bf16 inputs of a tile */

static bool amx_usable(void) { return kernels_vnni.usable() && tiles_granted(); }

/* Tile configurations for 1 to 16 activation rows. */
#define CONFIG(n)                                                                                      \
    {                                                                                                  \
        .palette = 1, .row_bytes = {[0 ... 7] = AMX_ROW_BYTES}, .rows = {                              \
            [0 ... 5] = (n),                                                                           \
            [6 ... 7] = AMX_ROWS                                                                       \
        }                                                                                              \
    }
static const struct tile_config tiles_of[AMX_ROWS] = {
    CONFIG(1), CONFIG(2),  CONFIG(3),  CONFIG(4),  CONFIG(5),  CONFIG(6),  CONFIG(7),  CONFIG(8),
    CONFIG(9), CONFIG(10), CONFIG(11), CONFIG(12), CONFIG(13), CONFIG(14), CONFIG(15), CONFIG(16)};

/* Multiplies up to 16 * R activation rows by C weight blocks from `block` on, R and C 1 or 2. Tiles
 * 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights. Prefetches the weights at `next`, unless
 * it is NULL. */
static inline __attribute__((always_inline)) void tile_sums(const int R, const int C, float *y,
                                                            const bf16 *x, size_t x_stride,
                                                            const struct panel *panel, size_t block,
                                                            const char *next)
{
    const size_t x_bytes = x_stride * sizeof *x, y_bytes = PANEL_WIDTH * sizeof *y;
    const char *w = panel->w + block * panel->block_bytes;
    float *y_low = y + AMX_ROWS * PANEL_WIDTH;
    if (panel->accumulate) {
        _tile_loadd(0, y, y_bytes);
        if (C == 2)
            _tile_loadd(1, y + NR, y_bytes);
        if (R == 2)
            _tile_loadd(2, y_low, y_bytes);
        if (R == 2 && C == 2)
            _tile_loadd(3, y_low + NR, y_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = 0; k < panel->kc; k += TILE_K) {
        const size_t at = k * NR * sizeof(bf16);
        for (size_t line = 0; next && line < TILE_K * NR * sizeof(bf16); line += 64) {
            __builtin_prefetch(next + at + line, 0, 3);
            if (C == 2)
                __builtin_prefetch(next + panel->block_bytes + at + line, 0, 3);
        }
        _tile_loadd(6, w + at, AMX_ROW_BYTES);
        if (C == 2)
            _tile_loadd(7, w + panel->block_bytes + at, AMX_ROW_BYTES);
        _tile_loadd(4, x + k, x_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (C == 2)
            _tile_dpbf16ps(1, 4, 7);
        if (R == 2) {
            _tile_loadd(5, x + AMX_ROWS * x_stride + k, x_bytes);
            _tile_dpbf16ps(2, 5, 6);
            if (C == 2)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, y, y_bytes);
    if (C == 2)
        _tile_stored(1, y + NR, y_bytes);
    if (R == 2)
        _tile_stored(2, y_low, y_bytes);
    if (R == 2 && C == 2)
        _tile_stored(3, y_low + NR, y_bytes);
}

static void panel_bf16(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w)
{
    /* with more rows, products take longer than reading the next panel, and it would displace this one in L1 */
    const bool prefetches = w->next && rows <= 3 * AMX_ROWS;
    tiles_set(&tiles_of[size_min(rows, AMX_ROWS) - 1]);
    for (size_t c = 0, columns; c < w->blocks; c += columns) {
        columns = size_min(2, w->blocks - c);
        for (size_t i = 0, n; i < rows; i += n) {
            float *y_i = y + i * PANEL_WIDTH + c * NR;
            const bf16 *x_i = x + i * x_stride;
            const char *next = prefetches && i == 0 ? w->next + c * w->block_bytes : NULL;
            n = rows - i > AMX_ROWS ? 2 * AMX_ROWS : AMX_ROWS;
            if (n == 2 * AMX_ROWS && columns == 2)
                tile_sums(2, 2, y_i, x_i, x_stride, w, c, next);
            else if (n == 2 * AMX_ROWS)
                tile_sums(2, 1, y_i, x_i, x_stride, w, c, next);
            else if (columns == 2)
                tile_sums(1, 2, y_i, x_i, x_stride, w, c, next);
            else
                tile_sums(1, 1, y_i, x_i, x_stride, w, c, next);
        }
    }
}

static void attend_bf16(const struct attend *a) { attend_in_bf16(a, panel_bf16, &bf16_phases); }

const struct kernels kernels_amx = {
    .isa = "amx",
    .summary = "AMX tiles of bf16 and int8, AVX-512 for the rest",
    .usable = amx_usable,
    .base = &kernels_int8_amx,
    .peak = {[PEAK_BF16] = &peak_amx_bf16},
    .panel_bf16 = panel_bf16,
    .attend_bf16 = attend_bf16,
};
