/* AMX tiles: whether this process may use them, and the tile configuration of the calling thread.
 *
 * LDTILECFG and TILERELEASE cost more than the products of a panel with few rows, 7 to 10 % of a
 * decode step. So tiles stay configured from panel to panel, and code that needs another
 * configuration sets its own. Nothing relies on the contents of tiles between calls. */
#pragma once

#ifdef AMX_HEADER /* emulation for machines without tiles */
#include AMX_HEADER
#else
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Requests permission to use AMX: Linux grants the 8 KiB of tile registers only to processes that
 * request them (arch_prctl(2)). False if CPU or system lack AMX. */
static inline bool tiles_granted(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE) ||
        !(d & AMX_INT8))
        return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

#include "kernel/tiles_now.h"

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64 }; /* rows and bytes per row of a full tile */

/* The operand of LDTILECFG. Declare instances static const: gcc believes that _tile_loadconfig()
 * reads 8 bytes, so stores to a variable might be optimised away. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Loads a tile configuration unless it is the thread's current one, compared by address. */
static inline void tiles_set(const struct tile_config *config)
{
    if (tiles_now != config)
        _tile_loadconfig(config);
    tiles_now = config;
}

static inline void tiles_release(void)
{
    _tile_release();
    tiles_now = NULL;
}
