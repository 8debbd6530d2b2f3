/* BLAKE2b-256 (RFC 7693) of several stretches of the same length at a time: lane i of every vector belongs to stretch i.
 * One stretch alone is a long chain of dependent steps, which leaves most of a core idle; several are independent.
 *
 * Included by hash_ISA.c, one for each width, after it defined
 *   LANES           stretches
 *   vec             a vector of LANES unsigned 64-bit words
 *   rotr(v, n)      every word rotated right, n one of 32, 24, 16, 63
 *   transpose(row)  LANES vectors: word j of row i becomes word i of row j */
#include <string.h>

#include "base/hash_pieces.h"

enum { BLOCK = 128, WORDS = 16, ROUNDS = 12 };

_Static_assert((int)LANES <= (int)HASH_MOST_LANES && WORDS % LANES == 0, "groups fill the lanes");

static const uint64_t iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

/* Which words of the block a round mixes in. */
static const unsigned char sigma[10][WORDS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

#define ALL(word) ((vec){0} + (word))

#define MIX(a, b, c, d, x, y)                                                                          \
    (a += b + x, d = rotr(d ^ a, 32), c += d, b = rotr(b ^ c, 24), a += b + y, d = rotr(d ^ a, 16),    \
     c += d, b = rotr(b ^ c, 63))

/* One block of every lane; `upto` is how many bytes of a stretch are in with it. */
static inline void compress(vec h[8], const vec m[WORDS], uint64_t upto, bool last)
{
    vec v[16];
    for (int i = 0; i < 8; i++) {
        v[i] = h[i];
        v[8 + i] = ALL(iv[i]);
    }
    v[12] ^= ALL(upto);
    if (last)
        v[14] = ~v[14];
#pragma GCC unroll 12
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned char *s = sigma[round % 10];
        MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[8 + i];
}

/* LANES stretches of `bytes` bytes, a multiple of BLOCK that is not 0. */
static void hash_lanes(const unsigned char *const *data, size_t bytes, struct hash *out)
{
    vec h[8], m[WORDS];
    for (int i = 0; i < 8; i++)
        h[i] = ALL(iv[i]);
    h[0] ^= ALL((uint64_t)(0x01010000 ^ HASH_BYTES)); /* no key, no tree */
    for (size_t at = 0; at < bytes; at += BLOCK) {
        for (int part = 0; part < WORDS; part += LANES) {
            for (int lane = 0; lane < LANES; lane++)
                memcpy(&m[part + lane], data[lane] + at + 8 * part, sizeof(vec));
            transpose(&m[part]);
        }
        compress(h, m, at + BLOCK, at + BLOCK == bytes);
    }
    for (int i = 0; i < HASH_BYTES / 8; i++)
        for (int lane = 0; lane < LANES; lane++) {
            const uint64_t word = h[i][lane];
            memcpy(out[lane].byte + 8 * i, &word, sizeof word);
        }
}
