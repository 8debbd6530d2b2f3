/* AVX-512: 512-bit registers, 32 of them. */
#include <immintrin.h>

#define VW                16
#define vf_fma(a, b, c)   _mm512_fmadd_ps(a, b, c)
#define vf_max(a, b)      _mm512_max_ps(a, b)
#define vf_min(a, b)      _mm512_min_ps(a, b)
#define vf_load_f16(p)    _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vi_load_u8(p)     ((vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_load_i8(p)     ((vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_store_i8(p, x) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(x)))
#include "kernel/set_vec.h"

enum { PANEL_ROWS = 6, PANEL_SUMS = 24 };
#include "kernel/set_attend.h"
#include "kernel/set_lines.h"
#include "kernel/set_widen.h"
#include "kernel/set_panel.h"
#include "kernel/set_rows.h"

extern const struct kernels kernels_int8_avx512;
void attend_few_avx512(const struct attend *a);

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

const struct kernels kernels_avx512 = {
    .isa = "avx512",
    .summary = "AVX-512",
    .usable = usable,
    .base = &kernels_int8_avx512,
    SET_SLOTS,
    .attend_few = attend_few_avx512,
};
