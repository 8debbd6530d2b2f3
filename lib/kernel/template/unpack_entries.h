/* Template: unpacks KV entries of 4, 5 and 6 bits (quant/kv_entries.h) to bytes with the zero point 128, those of
 * DTYPE_Q8_CHANNEL with the same values, without arithmetic in floating point.
 *
 * With q = 16 h + l, integer(q, m) is integer(l, m) plus a multiple of h: the rounded product of q's high bits is a whole
 * number. So the bytes are looked up by l, in a table of 16 for each m, and h (m + 1) << (8 - bits) is added. */
#pragma once

#include "kernel/template/vec.h"
#include "kernel/unpack_kv.h"

/* The values of a block, in bytes. */
typedef uint8_t vbl __attribute__((vector_size(KV_BLOCK)));
typedef uint16_t vbl_halves __attribute__((vector_size(KV_BLOCK)));
typedef uint32_t vbl_words __attribute__((vector_size(KV_BLOCK)));
typedef uint64_t vbl_quads __attribute__((vector_size(KV_BLOCK)));
typedef vbl vbl_any __attribute__((aligned(1), may_alias));

/* What an including file may define:
 *
 *   vbl_both(at)                   KV_GROUP bytes, twice
 *   vbl_lookup(table, q)           the bytes of table[2][KV_GROUP] that q, below 16, selects: each group from its own */
#ifndef vbl_both
INLINE vbl vbl_both(const char *at)
{
    vbl x;
    memcpy(&x, at, KV_GROUP);
    memcpy((char *)&x + KV_GROUP, at, KV_GROUP);
    return x;
}
#endif

#ifndef vbl_lookup
#define vbl_lookup(table, q)                                                                           \
    vbl_lookup_bytes(table, &(q)) /* compilers note how vectors of this size are passed */
INLINE vbl vbl_lookup_bytes(const uint8_t table[2][KV_GROUP], const vbl *q)
{
    vbl x = *q;
    for (size_t i = 0; i < KV_BLOCK; i++)
        x[i] = table[i / KV_GROUP][x[i]];
    return x;
}
#endif

/* Adds the products of q's high bits, from `high` on, to the bytes of a block. */
INLINE void add_high_bits(unsigned bits, vbl *x, const char *high, const struct kv_unpack *m)
{
    vbl h;
    if (bits == 5) {
        uint32_t word;
        const vbl_words shift = {0, 1, 2, 3, 4, 5, 6, 7};
        memcpy(&word, high, sizeof word);
        h = (vbl)((word - (vbl_words){0}) >> shift & 0x01010101);
    } else {
        uint64_t word;
        const vbl_quads shift = {0, 2, 4, 6};
        memcpy(&word, high, sizeof word);
        h = (vbl)((word - (vbl_quads){0}) >> shift & 0x0303030303030303);
    }
    vbl_halves factor;
    memcpy(&factor, m->high, sizeof factor);
    *x += (vbl)((vbl_halves)h * factor); /* of both bytes of a half: products are below 256 */
}

/* Unpacks `blocks` blocks of an entry. */
INLINE void unpack_entry(unsigned bits, char *to, const char *entry, struct kv_entry_layout at,
                         size_t blocks)
{
    const struct kv_unpack *table = kv_unpack[bits - 4];
    const unsigned char *m = (const unsigned char *)entry + at.multiplier;
    const char *low = entry, *high = entry + at.high;
    ROLLED(for (size_t block = 0; block < blocks; block++))
    {
        const vbl_words halves = {0, 0, 0, 0, 4, 4, 4, 4};
        const vbl q = (vbl)((vbl_words)vbl_both(low) >> halves & 0x0f0f0f0f);
        vbl x = vbl_lookup(table[m[block]].low, q);
        if (bits > 4)
            add_high_bits(bits, &x, high, &table[m[block]]);
        *(vbl_any *)to = x;
        to += KV_BLOCK;
        low += KV_BLOCK / 2;
        high += (bits - 4) * (KV_BLOCK / 8);
    }
}
