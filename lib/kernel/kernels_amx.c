/* AMX: tiles of 16 rows of 64 bytes. tdpbf16ps adds the products of a 16 x 32 tile of activations and a
 * 32 x 16 tile of weights to a 16 x 16 tile of sums. A tile of weights is 1 KiB of a packed block as it
 * lies in the file.
 *
 * A tile of activations has as many rows as there are, up to 16: a row's sums do not depend on the others. */
#include "kernel/kernel.h"

#ifdef AMX_HEADER /* a stand-in for machines without tiles */
#include AMX_HEADER
#else
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux hands the 8 KiB of tile registers only to processes that ask (arch_prctl(2)). */
static bool tiles_granted(void)
{
    enum {
        REQUEST_PERMISSION = 0x1023,
        TILE_DATA = 18,
        AMX_BF16 = 1 << 22,
        AMX_TILE = 1 << 24,
        AMX_INT8 = 1 << 25
    };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE) ||
        !(d & AMX_INT8))
        return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

#include "kernel/set_tiles.h"

extern const struct kernels kernels_vnni, kernels_int8_amx, kernels_amx;

enum { AMX_ROWS = 16, TILE_BYTES = 64, TILE_DEPTH = 32 };

static bool usable(void) { return kernels_vnni.usable() && tiles_granted(); }

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* For 1 to 16 rows. Constants: gcc believes that _tile_loadconfig() reads 8 bytes, so stores to a variable might be left
 * out. */
#define CONFIG(n)                                                                                      \
    {                                                                                                  \
        .palette = 1, .row_bytes = {[0 ... 7] = TILE_BYTES}, .rows = {                                 \
            [0 ... 5] = (n),                                                                           \
            [6 ... 7] = AMX_ROWS                                                                       \
        }                                                                                              \
    }
static const struct tile_config tiles_of[AMX_ROWS] = {
    CONFIG(1), CONFIG(2),  CONFIG(3),  CONFIG(4),  CONFIG(5),  CONFIG(6),  CONFIG(7),  CONFIG(8),
    CONFIG(9), CONFIG(10), CONFIG(11), CONFIG(12), CONFIG(13), CONFIG(14), CONFIG(15), CONFIG(16)};

/* Sums of 16 or 32 rows and of one or two blocks beginning at `block`: tiles 0 to 3; 4 and 5 are activations, 6
 * and 7 weights. `next` is fetched meanwhile. */
static inline __attribute__((always_inline)) void tile_sums(const int R, const int C, float *y,
                                                            const bf16 *x, size_t x_stride,
                                                            const struct panel *panel, size_t block,
                                                            const char *next)
{
    const size_t x_bytes = x_stride * sizeof *x, y_bytes = PANEL_WIDTH * sizeof *y;
    const char *w = panel->w + block * panel->block_bytes;
    float *y_low = y + AMX_ROWS * PANEL_WIDTH;
    if (panel->onward) {
        _tile_loadd(0, y, y_bytes);
        if (C == 2)
            _tile_loadd(1, y + LANES, y_bytes);
        if (R == 2)
            _tile_loadd(2, y_low, y_bytes);
        if (R == 2 && C == 2)
            _tile_loadd(3, y_low + LANES, y_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = 0; k < panel->depth; k += TILE_DEPTH) {
        const size_t at = k * LANES * sizeof(bf16);
        for (size_t line = 0; next && line < TILE_DEPTH * LANES * sizeof(bf16); line += 64) {
            __builtin_prefetch(next + at + line, 0, 3);
            if (C == 2)
                __builtin_prefetch(next + panel->block_bytes + at + line, 0, 3);
        }
        _tile_loadd(6, w + at, TILE_BYTES);
        if (C == 2)
            _tile_loadd(7, w + panel->block_bytes + at, TILE_BYTES);
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
        _tile_stored(1, y + LANES, y_bytes);
    if (R == 2)
        _tile_stored(2, y_low, y_bytes);
    if (R == 2 && C == 2)
        _tile_stored(3, y_low + LANES, y_bytes);
}

static void panel_bf16(float *y, const bf16 *x, size_t x_stride, size_t rows, const struct panel *w)
{
    tiles_set(&tiles_of[size_min(rows, AMX_ROWS) - 1]);
    for (size_t c = 0, columns; c < w->blocks; c += columns) {
        columns = size_min(2, w->blocks - c);
        for (size_t i = 0, n; i < rows; i += n) {
            float *y_i = y + i * PANEL_WIDTH + c * LANES;
            const bf16 *x_i = x + i * x_stride;
            const char *next = w->next && i == 0 ? w->next + c * w->block_bytes : NULL;
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

const struct kernels kernels_amx = {
    .isa = "amx",
    .summary = "AMX tiles of bf16 and int8, AVX-512 for the rest",
    .usable = usable,
    .base = &kernels_int8_amx,
    .peak = {[PEAK_BF16] = &peak_amx_bf16},
    .panel_bf16 = panel_bf16,
};
