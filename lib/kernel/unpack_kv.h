/* Tables by which kernels unpack KV entries of 4, 5 and 6 bits (template/unpack_entries.h). */
#pragma once

#include "quant/kv_entries.h"

/* For a byte of the multipliers m of both groups of a block: 128 + integer(q, m) for q below 16, and what is added for
 * each unit of q / 16, repeated. */
struct kv_unpack {
    uint8_t low[2][KV_GROUP];
    uint16_t high[2][KV_GROUP / 2];
};

/* Of 4, 5 and 6 bits, by that byte. kernels_setup() fills them. */
extern struct kv_unpack kv_unpack[3][256];

void kv_unpack_fill(void);
