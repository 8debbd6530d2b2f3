/* Multiply-adds from tiles: bytes, 16 x 64 by 64 x 16, and bf16, 16 x 32 by 32 x 16. */
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel/peak.h"
#include "kernel/set_tiles.h"

enum { ROWS = 16, ROW_BYTES = 64, SUMS = 6 };

enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };

/* Linux hands tile registers only to processes that ask (arch_prctl(2)). */
static bool has(unsigned product)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_TILE && d & product &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool usable(void) { return has(AMX_INT8); }
static bool usable_bf16(void) { return has(AMX_BF16); }

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* A constant: gcc believes that _tile_loadconfig() reads 8 bytes, so stores to a variable might be left out. */
static const struct tile_config whole_tiles = {
    .palette = 1, .row_bytes = {[0 ... 7] = ROW_BYTES}, .rows = {[0 ... 7] = ROWS}};

/* Tiles 0 to 5 are sums, 6 and 7 are multiplied. */
#define PEAK_OF_TILES(name, product, depth)                                                            \
    static double name(size_t rounds, float *sink)                                                     \
    {                                                                                                  \
        int32_t sums[ROWS * ROW_BYTES / 4];                                                            \
        tiles_set(&whole_tiles);                                                                       \
        _tile_zero(0);                                                                                 \
        _tile_zero(1);                                                                                 \
        _tile_zero(2);                                                                                 \
        _tile_zero(3);                                                                                 \
        _tile_zero(4);                                                                                 \
        _tile_zero(5);                                                                                 \
        _tile_zero(6);                                                                                 \
        _tile_zero(7);                                                                                 \
        const size_t turns = rounds / 16; /* a tile takes 16 cycles */                                 \
        for (size_t i = 0; i < turns; i++) {                                                           \
            product(0, 6, 7);                                                                          \
            product(1, 6, 7);                                                                          \
            product(2, 6, 7);                                                                          \
            product(3, 6, 7);                                                                          \
            product(4, 6, 7);                                                                          \
            product(5, 6, 7);                                                                          \
        }                                                                                              \
        _tile_stored(0, sums, ROW_BYTES);                                                              \
        tiles_release();                                                                               \
        *sink += (float)sums[0];                                                                       \
        return (double)turns * SUMS * ROWS * ROWS * (depth);                                           \
    }

PEAK_OF_TILES(run, _tile_dpbusd, ROW_BYTES)
PEAK_OF_TILES(run_bf16, _tile_dpbf16ps, ROW_BYTES / 2)

const struct peak peak_amx = {.isa = "amx", .kind = PEAK_INT8, .usable = usable, .run = run};
const struct peak peak_amx_bf16 = {
    .isa = "amx", .kind = PEAK_BF16, .usable = usable_bf16, .run = run_bf16};
