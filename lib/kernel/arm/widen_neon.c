/* Advanced SIMD: widening of KV entries. */
#include <arm_neon.h>

typedef uint8_t neon_block __attribute__((vector_size(32)));
static inline neon_block neon_lookup_block(const uint8_t *const table[2], neon_block x)
{
    for (int half = 0; half < 2; half++) {
        uint8_t *at = (uint8_t *)&x + 16 * half;
        vst1q_u8(at, vqtbl1q_u8(vld1q_u8(table[half]), vld1q_u8(at)));
    }
    return x;
}
#define vbl_lookup(table, q) neon_lookup_block(table, *(q))
#include "kernel/arm/neon_begin.h"
#include "kernel/template/widen.h"

WIDEN_FUNCTION(widen_neon)
