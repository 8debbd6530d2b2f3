/* Advanced SIMD: unpacking of KV entries. */
#include <arm_neon.h>

#include "quant/kv_entries.h"

typedef uint8_t neon_block __attribute__((vector_size(2 * KV_GROUP)));
static inline neon_block neon_lookup_block(neon_block q, unsigned char m)
{
    const uint8_t *const table[] = {kv4_integers[m & 15], kv4_integers[m >> 4]};
    for (int half = 0; half < 2; half++) {
        uint8_t *at = (uint8_t *)&q + KV_GROUP * half;
        vst1q_u8(at, vqtbl1q_u8(vld1q_u8(table[half]), vld1q_u8(at)));
    }
    return q;
}
#define vbl_lookup(q, m) neon_lookup_block(*(q), m)
#include "kernel/arm/neon_begin.h"
#include "kernel/template/unpack_entries.h"

UNPACK_FUNCTION(unpack_neon)
