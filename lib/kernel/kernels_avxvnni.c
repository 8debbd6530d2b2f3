/* AVX-VNNI: four products of bytes and their sum in one instruction, in the registers of AVX2. */
#include "kernel/kernel.h"

#ifdef AVXVNNI_HEADER /* a stand-in for machines without it */
#include AVXVNNI_HEADER
#else
#include <cpuid.h>
#include <immintrin.h>

#define VW                8
#define vf_fma(a, b, c)   _mm256_fmadd_ps(a, b, c)
#define vf_max(a, b)      _mm256_max_ps(a, b)
#define vf_min(a, b)      _mm256_min_ps(a, b)
#define vf_load_f16(p)    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_load_u8(p)     ((vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define vi_load_i8(p)     ((vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define vi_store_i8(p, x) store_codes(p, (__m256i)(x))
static inline void store_codes(int8_t *p, __m256i x)
{
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(halves, halves));
}

static bool has_avxvnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}
#endif
#include "kernel/set_vec.h"

extern const struct kernels kernels_avx2;

#define INT8_ZERO(bits) 0
INLINE vi vi_dot4(unsigned bits, vi sum, vu weights, vi x)
{
    (void)bits;
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)x);
}

enum { INT8_STEP = 1, INT8_COLUMNS = 1 };
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#define INT8_LINE_ROWS 1
#include "kernel/set_int8.h"

static bool usable(void) { return kernels_avx2.usable() && has_avxvnni(); }

const struct kernels kernels_avxvnni = {
    .isa = "avxvnni",
    .summary = "AVX-VNNI for weights of few bits, AVX2 for the rest",
    .usable = usable,
    .base = &kernels_avx2,
    INT8_SLOTS,
};
