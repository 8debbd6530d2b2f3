/* Template: shuffles of quantised KV entries. */
#pragma once

#include "kernel/template/vec.h"

/* Shuffles that interleave bytes, byte pairs, 4-byte words or 8-byte words of two registers within
 * 16-byte lanes, as x86's unpack instructions do. */
typedef uint8_t vb __attribute__((vector_size(4 * VW)));
typedef uint16_t vp __attribute__((vector_size(4 * VW)));
typedef uint64_t vq __attribute__((vector_size(4 * VW)));
#define TWO(F, l, s)     F(l, s), F(l + 1, s)
#define SIXTEEN(F, l, s) EIGHT(F, l, s), EIGHT(F, l + 8, s)
#define ZIP(k, of, s)                                                                                  \
    ((k) / (of) * (of) + (k) % (of) / 2 + (s) * (of) / 2 + ((k) % 2 ? (of)*VW / 4 : 0))
#define ZIP_BYTES(k, s) ZIP(k, 16, s)
#define ZIP_PAIRS(k, s) ZIP(k, 8, s)
#define ZIP_WORDS(k, s) ZIP(k, 4, s)
#define ZIP_QUADS(k, s) ZIP(k, 2, s)
#if VW == 4
#define ALL_QUADS(F, s) TWO(F, 0, s)
#define ALL_PAIRS(F, s) EIGHT(F, 0, s)
#define ALL_BYTES(F, s) SIXTEEN(F, 0, s)
#elif VW == 8
#define ALL_QUADS(F, s) FOUR(F, 0, s)
#define ALL_PAIRS(F, s) SIXTEEN(F, 0, s)
#define ALL_BYTES(F, s) SIXTEEN(F, 0, s), SIXTEEN(F, 16, s)
#else
#define ALL_QUADS(F, s) EIGHT(F, 0, s)
#define ALL_PAIRS(F, s) SIXTEEN(F, 0, s), SIXTEEN(F, 16, s)
#define ALL_BYTES(F, s) ALL_PAIRS(F, s), SIXTEEN(F, 32, s), SIXTEEN(F, 48, s)
#endif
#define ZIPPED(type, ALL, F, x, y, s) ((vu)__builtin_shufflevector((type)(x), (type)(y), ALL(F, s)))

/* Interleaves the bytes of 4 V entries, given one in each x[i]: afterwards each 4-byte lane holds
 * one column's bytes of entries 0, 2, 1, 3. Lane 4 * l + e of x[r] has column 16 * l + 4 * r + e. */
INLINE void zip_rows(vu x[4])
{
    const vu even = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[0], x[2], 0);
    const vu even_high = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[0], x[2], 1);
    const vu odd = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[1], x[3], 0);
    const vu odd_high = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[1], x[3], 1);
    x[0] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even, odd, 0);
    x[1] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even, odd, 1);
    x[2] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even_high, odd_high, 0);
    x[3] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even_high, odd_high, 1);
}

/* Transposes 4 x 4 words in each 16-byte lane of x[0 .. 4). */
INLINE void transpose_lanes(vu x[4])
{
    const vu low = ZIPPED(vu, ALL_LANES, ZIP_WORDS, x[0], x[1], 0);
    const vu high = ZIPPED(vu, ALL_LANES, ZIP_WORDS, x[0], x[1], 1);
    const vu low2 = ZIPPED(vu, ALL_LANES, ZIP_WORDS, x[2], x[3], 0);
    const vu high2 = ZIPPED(vu, ALL_LANES, ZIP_WORDS, x[2], x[3], 1);
    x[0] = ZIPPED(vq, ALL_QUADS, ZIP_QUADS, low, low2, 0);
    x[1] = ZIPPED(vq, ALL_QUADS, ZIP_QUADS, low, low2, 1);
    x[2] = ZIPPED(vq, ALL_QUADS, ZIP_QUADS, high, high2, 0);
    x[3] = ZIPPED(vq, ALL_QUADS, ZIP_QUADS, high, high2, 1);
}
