/* Template: unpacks KV entries of 4, 5 and 6 bits (quant/kv_entries.h) to DTYPE_Q8_CHANNEL, a block of 32 values at a
 * time. */
#pragma once

#include "kernel/template/vec.h"
#include "kernel/unpack_kv.h"

/* The values of a block, in bytes. */
typedef uint8_t vbl __attribute__((vector_size(KV_BLOCK)));
typedef int8_t vbl_signed __attribute__((vector_size(KV_BLOCK)));
typedef uint32_t vbl_words __attribute__((vector_size(KV_BLOCK)));
typedef uint64_t vbl_quads __attribute__((vector_size(KV_BLOCK)));
typedef int16_t vbl_wide __attribute__((vector_size(2 * KV_BLOCK)));
typedef vbl vbl_any __attribute__((aligned(1), may_alias));

/* What an including file may define (q and z are addresses: compilers note how vectors of this size are passed, even to
 * functions that they inline). The byte m has the multipliers of both groups.
 *
 *   vbl_repeat(n, at)      n bytes, repeated
 *   vbl_lookup(q, m)       128 + integer(q, m) of 4 bits
 *   vbl_scale(bits, z, m)  128 + integer(q, m) of 5 or 6 bits, where z is 2 q - (2^bits - 1), with sign */
#ifndef vbl_repeat
INLINE vbl vbl_repeat(size_t n, const char *at)
{
    uint64_t x[2] = {0};
    memcpy(x, at, n);
    if (n == 4)
        return (vbl)((uint32_t)x[0] - (vbl_words){0});
    return (vbl)(vbl_quads){x[0], x[n == 16], x[0], x[n == 16]};
}
#endif

#ifndef vbl_lookup
INLINE vbl vbl_lookup(const vbl *from, unsigned char m)
{
    const uint8_t *const table[] = {kv4_integers[m & 15], kv4_integers[m >> 4]};
    vbl q = *from;
    for (size_t i = 0; i < KV_BLOCK; i++)
        q[i] = table[i / KV_GROUP][q[i]];
    return q;
}
#endif

#ifndef vbl_scale
INLINE vbl vbl_scale(unsigned bits, const vbl *z, unsigned char m)
{
    const uint64_t each = 0x0001000100010001, low = each * ((m & 15) + 1), high = each * ((m >> 4) + 1);
    const vbl_quads halves[2] = {low - (vbl_quads){0}, high - (vbl_quads){0}};
    const int16_t shift = (int16_t)KV_SHIFT(bits), up = (int16_t)((1 << shift >> 1) + (128 << shift));
    vbl_wide factor;
    memcpy(&factor, halves, sizeof factor);
    const vbl_wide product = __builtin_convertvector((vbl_signed)*z, vbl_wide) * factor;
    return __builtin_convertvector((product + up) >> shift, vbl);
}
#endif

/* The integers of a block, as bytes with the zero point 128. */
INLINE vbl unpack_values(unsigned bits, const char *low, const char *high, unsigned char m)
{
    const vbl_words halves = {0, 0, 0, 0, 4, 4, 4, 4};
    vbl q = (vbl)((vbl_words)vbl_repeat(KV_GROUP, low) >> halves & 0x0f0f0f0f);
    if (bits == 4)
        return vbl_lookup(&q, m);
    if (bits == 5) {
        const vbl_words shift = {0, 1, 2, 3, 4, 5, 6, 7};
        q |= (vbl)(((vbl_words)vbl_repeat(4, high) >> shift & 0x01010101) << 4);
    } else {
        const vbl_quads shift = {0, 2, 4, 6};
        q |= (vbl)(((vbl_quads)vbl_repeat(8, high) >> shift & 0x0303030303030303) << 4);
    }
    q += q - (uint8_t)((1 << bits) - 1);
    return vbl_scale(bits, &q, m);
}

INLINE void unpack_entry(unsigned bits, char *to, const char *entry, size_t d)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, d);
    const size_t each = (bits - 4) * (KV_BLOCK / 8), whole = d / KV_BLOCK;
    const unsigned char *m = (const unsigned char *)entry + at.multiplier;
    const char *low = entry, *high = entry + at.high;
    ROLLED(for (size_t block = 0; block < whole; block++))
    {
        *(vbl_any *)(to + block * KV_BLOCK) = unpack_values(bits, low, high, m[block]);
        low += KV_BLOCK / 2;
        high += each;
    }
    if (d % KV_BLOCK) {
        const vbl some = unpack_values(bits, low, high, m[whole]);
        memcpy(to + whole * KV_BLOCK, &some, d % KV_BLOCK);
    }
    bf16 scale;
    memcpy(&scale, entry + at.scale, sizeof scale);
    const float wide = bf16_to_f32(scale);
    memcpy(to + d, &wide, sizeof wide);
}

INLINE void unpack_entries(unsigned bits, char *to, const char *tile, const ptrdiff_t *rows, size_t d)
{
    enum { AHEAD = 3 * ATTEND_TILE };
    const size_t bytes = kv_entry_layout(bits, d).bytes;
    for (size_t i = 0; i < ATTEND_TILE; i++) {
        const char *entry = tile + (rows ? rows[i] : (ptrdiff_t)(i * bytes));
        for (size_t at = 0; at < bytes; at += 64) /* mostly the tiles that follow */
            __builtin_prefetch(entry + AHEAD * bytes + at, 0, 3);
        unpack_entry(bits, to + i * (d + sizeof(float)), entry, d);
    }
}

/* Defines the function NAME. */
#define UNPACK_FUNCTION(NAME)                                                                          \
    unpack_function NAME;                                                                              \
    void NAME(char *to, enum dtype type, const char *tile, const ptrdiff_t *rows, size_t d)            \
    {                                                                                                  \
        switch (kv_entry_bits(type)) {                                                                 \
        case 4: unpack_entries(4, to, tile, rows, d); break;                                           \
        case 5: unpack_entries(5, to, tile, rows, d); break;                                           \
        default: unpack_entries(6, to, tile, rows, d); break;                                          \
        }                                                                                              \
    }
