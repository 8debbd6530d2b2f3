/* AVX512-VNNI: vpdpbusd multiplies 4 bytes of a lane, weights without a sign and activations with one, and adds them to
 * an int32_t. A line of packed codes is one such operand. */
#include <immintrin.h>

#define VW              16
#define vf_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vf_max(a, b)    _mm512_max_ps(a, b)
#define vf_min(a, b)    _mm512_min_ps(a, b)
#define vf_load_f16(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vi_dot4(bits, sum, w, x)                                                                       \
    ((void)(bits), (vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(w), (__m512i)(x)))
#define INT8_ZERO(bits)   0
#define vi_load_u8(p)     ((vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_load_i8(p)     ((vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_store_i8(p, x) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(x)))
#include "kernel/set_vec.h"

enum { INT8_STEP = 2, INT8_COLUMNS = 2 };
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#define INT8_LINE_ROWS 8
#include "kernel/set_int8.h"

extern const struct kernels kernels_avx512;

void attend_few_vnni(const struct attend *a);

static bool usable(void) { return kernels_avx512.usable() && __builtin_cpu_supports("avx512vnni"); }

const struct kernels kernels_vnni = {
    .isa = "vnni",
    .summary = "AVX512-VNNI",
    .usable = usable,
    .base = &kernels_avx512,
    INT8_SLOTS,
    .attend_few = attend_few_vnni,
};
