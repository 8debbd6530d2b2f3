/* Template: widens KV entries of 4, 5 and 6 bits (quant/kv_entries.h) to DTYPE_Q8_CHANNEL, 32 values at a
 * time. */
#pragma once

#include "kernel/template/vec.h"
#include "kernel/widen_kv.h"

/* The values of a block, in bytes and in 16 bits. */
typedef uint8_t vbl __attribute__((vector_size(KV_BLOCK)));
typedef uint32_t vbl_words __attribute__((vector_size(KV_BLOCK)));
typedef uint64_t vbl_quads __attribute__((vector_size(KV_BLOCK)));
typedef int16_t vbl_wide __attribute__((vector_size(2 * KV_BLOCK)));
typedef vbl vbl_any __attribute__((aligned(1), may_alias));

/* Replaces every byte of *from, which must be below 16, by table[0][byte], in the second half by table[1][byte]. (Not of
 * an argument: compilers note how those of this size are passed, even to functions that they inline.) */
#ifndef vbl_lookup
INLINE vbl vbl_lookup(const uint8_t *const table[2], const vbl *from)
{
    vbl q = *from;
    for (size_t i = 0; i < KV_BLOCK; i++)
        q[i] = table[i / KV_GROUP][q[i]];
    return q;
}
#endif

/* Bits 0 to 3 of the values, from the block's bytes at `at`. */
INLINE vbl low_bits(const char *at)
{
    const vbl_words shift = {0, 0, 0, 0, 4, 4, 4, 4};
    char twice[KV_BLOCK];
    vbl_words q;
    memcpy(twice, at, KV_GROUP);
    memcpy(twice + KV_GROUP, at, KV_GROUP);
    memcpy(&q, twice, sizeof q);
    return (vbl)(q >> shift & 0x0f0f0f0f);
}

/* Bits 4 and up of the values, in place. */
INLINE vbl high_bits(unsigned bits, const char *at)
{
    if (bits == 5) {
        const vbl_words shift = {0, 1, 2, 3, 4, 5, 6, 7};
        uint32_t word;
        memcpy(&word, at, sizeof word);
        return (vbl)((word - (vbl_words){0}) >> shift & 0x01010101) << 4;
    }
    const vbl_quads shift = {0, 2, 4, 6};
    uint64_t quad;
    memcpy(&quad, at, sizeof quad);
    return (vbl)((quad - (vbl_quads){0}) >> shift & 0x0303030303030303) << 4;
}

/* The multiplier of each value: m[0], in the second half m[1]. */
INLINE vbl_wide multipliers(const unsigned m[2])
{
    vbl_quads of[2];
    const uint64_t low = 0x0001000100010001 * (uint64_t)m[0],
                   high = 0x0001000100010001 * (uint64_t)m[1];
    of[0] = low - (vbl_quads){0};
    of[1] = high - (vbl_quads){0};
    vbl_wide all;
    memcpy(&all, of, sizeof all);
    return all;
}

/* The integers of a block, as bytes with the zero point 128. */
INLINE vbl widen_block(unsigned bits, const char *low, const char *high, unsigned m)
{
    if (bits == 4) {
        const uint8_t *const table[2] = {kv4_integers[m & 15], kv4_integers[m >> 4]};
        const vbl q = low_bits(low);
        return vbl_lookup(table, &q);
    }
    const int16_t shift = (int16_t)KV_SHIFT(bits), top = (int16_t)((1 << bits) - 1);
    const unsigned factor[2] = {(m & 15) + 1, (m >> 4) + 1};
    const vbl_wide q = __builtin_convertvector(low_bits(low) | high_bits(bits, high), vbl_wide);
    const vbl_wide product = (q + q - top) * multipliers(factor);
    return __builtin_convertvector((product + (int16_t)((1 << shift >> 1) + (128 << shift))) >> shift,
                                   vbl);
}

INLINE void widen_entry(unsigned bits, char *to, const char *entry, size_t d)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, d);
    const size_t each = (bits - 4) * (KV_BLOCK / 8);
    for (size_t block = 0; block < div_up(d, KV_BLOCK); block++) {
        const size_t some = d - block * KV_BLOCK;
        const unsigned m = (unsigned char)entry[at.multiplier + block];
        const vbl integers =
            widen_block(bits, entry + block * (KV_BLOCK / 2), entry + at.high + block * each, m);
        if (some >= KV_BLOCK)
            *(vbl_any *)(to + block * KV_BLOCK) = integers;
        else
            memcpy(to + block * KV_BLOCK, &integers, some);
    }
    bf16 scale;
    memcpy(&scale, entry + at.scale, sizeof scale);
    const float wide = bf16_to_f32(scale);
    memcpy(to + d, &wide, sizeof wide);
}

INLINE void widen_entries(unsigned bits, char *to, const char *tile, const ptrdiff_t *rows, size_t d)
{
    enum { AHEAD = 3 * ATTEND_TILE };
    const size_t bytes = kv_entry_layout(bits, d).bytes;
    for (size_t i = 0; i < ATTEND_TILE; i++) {
        const char *entry = tile + (rows ? rows[i] : (ptrdiff_t)(i * bytes));
        for (size_t at = 0; at < bytes; at += 64) /* mostly the tiles that follow */
            __builtin_prefetch(entry + AHEAD * bytes + at, 0, 3);
        widen_entry(bits, to + i * (d + sizeof(float)), entry, d);
    }
}

/* Defines the function NAME. */
#define WIDEN_FUNCTION(NAME)                                                                           \
    widen_function NAME;                                                                               \
    void NAME(char *to, enum dtype type, const char *tile, const ptrdiff_t *rows, size_t d)            \
    {                                                                                                  \
        switch (kv_entry_bits(type)) {                                                                 \
        case 4: widen_entries(4, to, tile, rows, d); break;                                            \
        case 5: widen_entries(5, to, tile, rows, d); break;                                            \
        default: widen_entries(6, to, tile, rows, d); break;                                           \
        }                                                                                              \
    }
