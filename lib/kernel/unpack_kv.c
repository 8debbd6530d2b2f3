/* The tables of unpack_kv.h, computed. */
#include "kernel/unpack_kv.h"

struct kv_unpack kv_unpack[3][256] __attribute__((aligned(64)));

void kv_unpack_fill(void)
{
    for (unsigned bits = 4; bits <= 6; bits++)
        for (unsigned byte = 0; byte < 256; byte++)
            for (unsigned i = 0; i < 2 * KV_GROUP; i++) {
                struct kv_unpack *to = &kv_unpack[bits - 4][byte];
                const unsigned group = i / KV_GROUP, q = i % KV_GROUP, m = byte >> 4 * group & 15;
                to->low[group][q] = (uint8_t)(128 + kv_entry_integer(bits, q, m));
                to->high[group][q / 2] = (uint16_t)((m + 1) << (8 - bits));
            }
}
