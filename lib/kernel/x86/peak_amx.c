/* Peak throughput of AMX tile products: int8, 16 x 64 by 64 x 16, and bf16, 16 x 32 by 32 x 16. */
#include "kernel/peak.h"
#include "kernel/x86/amx_tiles.h"

enum { SUMS = 6 };

static const struct tile_config full_tiles = {
    .palette = 1, .row_bytes = {[0 ... 7] = AMX_ROW_BYTES}, .rows = {[0 ... 7] = AMX_ROWS}};

/* Defines the benchmark loop of a tile product of k inputs: tiles 0 to 5 are sums, 6 and 7
 * operands. */
#define PEAK_OF_TILES(name, product, k)                                                                \
    static double name(size_t rounds, float *sink)                                                     \
    {                                                                                                  \
        int32_t sums[AMX_ROWS * AMX_ROW_BYTES / 4];                                                    \
        tiles_set(&full_tiles);                                                                        \
        _tile_zero(0);                                                                                 \
        _tile_zero(1);                                                                                 \
        _tile_zero(2);                                                                                 \
        _tile_zero(3);                                                                                 \
        _tile_zero(4);                                                                                 \
        _tile_zero(5);                                                                                 \
        _tile_zero(6);                                                                                 \
        _tile_zero(7);                                                                                 \
        const size_t turns = rounds / 16; /* of 16 cycles a product */                                 \
        for (size_t i = 0; i < turns; i++) {                                                           \
            product(0, 6, 7);                                                                          \
            product(1, 6, 7);                                                                          \
            product(2, 6, 7);                                                                          \
            product(3, 6, 7);                                                                          \
            product(4, 6, 7);                                                                          \
            product(5, 6, 7);                                                                          \
        }                                                                                              \
        _tile_stored(0, sums, AMX_ROW_BYTES);                                                          \
        tiles_release();                                                                               \
        *sink += (float)sums[0];                                                                       \
        return (double)turns * SUMS * AMX_ROWS * AMX_ROWS * (k);                                       \
    }

PEAK_OF_TILES(peak_amx_run, _tile_dpbusd, AMX_ROW_BYTES)
PEAK_OF_TILES(peak_amx_run_bf16, _tile_dpbf16ps, AMX_ROW_BYTES / 2)

const struct peak peak_amx = {
    .isa = "amx", .kind = PEAK_INT8, .usable = tiles_granted, .run = peak_amx_run};
const struct peak peak_amx_bf16 = {
    .isa = "amx", .kind = PEAK_BF16, .usable = tiles_granted, .run = peak_amx_run_bf16};
