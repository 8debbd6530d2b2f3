/* Four stretches at a time: 256-bit registers, 16 of them. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 4 };
typedef uint64_t vec __attribute__((vector_size(32)));

static inline vec rotate_bytes(vec v, char n)
{
    const __m128i from = _mm_set_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m128i moved = _mm_and_si128(_mm_add_epi8(from, _mm_set1_epi8(n)), _mm_set1_epi8(7)),
                  half = _mm_and_si128(from, _mm_set1_epi8(8));
    return (vec)_mm256_shuffle_epi8((__m256i)v, _mm256_broadcastsi128_si256(_mm_or_si128(moved, half)));
}

/* Whole bytes are a shuffle; 63 to the right is one to the left. */
#define rotr(v, n) ((n) % 8 ? ((v) >> (n)) ^ ((v) + (v)) : rotate_bytes(v, (n) / 8))

static inline void transpose(vec row[LANES])
{
    __m256i a[LANES];
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm256_unpacklo_epi64((__m256i)row[i], (__m256i)row[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi64((__m256i)row[i], (__m256i)row[i + 1]);
    }
    for (int p = 0; p < 2; p++) {
        row[p] = (vec)_mm256_permute2x128_si256(a[p], a[2 + p], 0x20);
        row[2 + p] = (vec)_mm256_permute2x128_si256(a[p], a[2 + p], 0x31);
    }
}

#include "base/set_hash.h"

static bool usable(void) { return __builtin_cpu_supports("avx2"); }

const struct hash_set hash_avx2 = {"avx2", usable, LANES, hash_lanes};
