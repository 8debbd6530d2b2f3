/* Eight stretches at a time: 512-bit registers, 32 of them, and a rotation of their own. */
#include <immintrin.h>
#include <stdint.h>

enum { LANES = 8 };
typedef uint64_t vec __attribute__((vector_size(64)));

#define rotr(v, n)        ((vec)_mm512_ror_epi64((__m512i)(v), n))
#define quarters(a, b, n) _mm512_shuffle_i64x2(a, b, n)

static inline void transpose(vec row[LANES])
{
    enum { EVEN = 0x88, ODD = 0xdd }; /* quarters 0 and 2, or 1 and 3, of both */
    __m512i a[LANES];
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm512_unpacklo_epi64((__m512i)row[i], (__m512i)row[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi64((__m512i)row[i], (__m512i)row[i + 1]);
    }
    for (int p = 0; p < 2; p++) {
        const __m512i even = quarters(a[p], a[2 + p], EVEN), even4 = quarters(a[4 + p], a[6 + p], EVEN),
                      odd = quarters(a[p], a[2 + p], ODD), odd4 = quarters(a[4 + p], a[6 + p], ODD);
        row[p] = (vec)quarters(even, even4, EVEN);
        row[2 + p] = (vec)quarters(odd, odd4, EVEN);
        row[4 + p] = (vec)quarters(even, even4, ODD);
        row[6 + p] = (vec)quarters(odd, odd4, ODD);
    }
}

#include "base/set_hash.h"

static bool usable(void) { return __builtin_cpu_supports("avx512f"); }

const struct hash_set hash_avx512 = {"avx512", usable, LANES, hash_lanes};
