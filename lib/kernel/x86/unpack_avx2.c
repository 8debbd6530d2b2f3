/* AVX2: unpacking of KV entries. Each half of a register has a group. */
#include <immintrin.h>

#include "quant/kv_entries.h"

#define vbl_repeat(n, at) ((vbl)avx2_repeat(n, at))
#define vbl_lookup(q, m)                                                                               \
    ((vbl)_mm256_shuffle_epi8(_mm256_loadu_si256((const void *)kv4_pairs[m]), (__m256i)(*(q))))
#define vbl_scale(bits, z, m) ((vbl)avx2_scale(bits, (__m256i)(*(z)), m))

/* kv4_integers of both groups of a block, by the byte of their multipliers. */
#define PAIR(m, second)                                                                                \
    {                                                                                                  \
        KV4_ROW(m), KV4_ROW(second)                                                                    \
    }
#define PAIRS(m)                                                                                       \
    PAIR(0, m), PAIR(1, m), PAIR(2, m), PAIR(3, m), PAIR(4, m), PAIR(5, m), PAIR(6, m), PAIR(7, m),    \
        PAIR(8, m), PAIR(9, m), PAIR(10, m), PAIR(11, m), PAIR(12, m), PAIR(13, m), PAIR(14, m),       \
        PAIR(15, m)
static const uint8_t kv4_pairs[256][2][KV_GROUP] = {
    PAIRS(0), PAIRS(1), PAIRS(2),  PAIRS(3),  PAIRS(4),  PAIRS(5),  PAIRS(6),  PAIRS(7),
    PAIRS(8), PAIRS(9), PAIRS(10), PAIRS(11), PAIRS(12), PAIRS(13), PAIRS(14), PAIRS(15),
};

static inline __m256i avx2_repeat(size_t n, const char *at)
{
    long long first = 0;
    if (n == 16)
        return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)at));
    memcpy(&first, at, n);
    return n == 4 ? _mm256_set1_epi32((int)first) : _mm256_set1_epi64x(first);
}

/* vpmulhrsw computes a b / 2^15, rounded up at halves, as the integers are: a = z 2^8, b = (m + 1) 2^left, of which m is
 * shifted to its place in words of m 0x0101. */
static inline __m256i avx2_scale(unsigned bits, __m256i z, unsigned char m)
{
    const int left = 7 - KV_SHIFT(bits);
    const __m256i right = _mm256_set_m128i(_mm_set1_epi32(12 - left), _mm_set1_epi32(8 - left));
    const __m256i one = _mm256_set1_epi16((short)(1 << left));
    const __m256i most = _mm256_set1_epi16((short)(15 << left));
    const __m256i words = _mm256_srlv_epi32(_mm256_set1_epi8((char)m), right);
    const __m256i factor = _mm256_add_epi16(_mm256_and_si256(words, most), one);
    const __m256i none = _mm256_setzero_si256();
    const __m256i even = _mm256_mulhrs_epi16(_mm256_unpacklo_epi8(none, z), factor);
    const __m256i odd = _mm256_mulhrs_epi16(_mm256_unpackhi_epi8(none, z), factor);
    return _mm256_xor_si256(_mm256_packs_epi16(even, odd), _mm256_set1_epi8((char)128));
}

#include "kernel/x86/avx2_begin.h"
#include "kernel/template/unpack_entries.h"

UNPACK_FUNCTION(unpack_avx2)
