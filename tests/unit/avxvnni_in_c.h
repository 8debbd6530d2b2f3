/* The instruction that the kernel set avxvnni needs (VPDPBUSD), emulated in plain C for machines
 * without it. Vectors are 128 bits wide instead of 256, which compilers support everywhere.
 * Included before vec.h. */
#ifndef BMC_AVXVNNI_IN_C_H
#define BMC_AVXVNNI_IN_C_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef __x86_64__
#define kernels_avx2 kernels_ref /* the kernel set that avxvnni extends */
#define peak_avxvnni peak_ref_int8
#endif

/* Templates are compiled once, with types and tile sizes as variables, instead of inlined for each
 * type: that takes a second instead of a minute, and tests run as fast. */
#define INLINE static __attribute__((unused))

#define VW 4
typedef float floats_in_c __attribute__((vector_size(4 * VW)));
typedef int32_t __m256i __attribute__((vector_size(4 * VW)));

/* a * b + c with a single rounding. */
static floats_in_c fma_in_c(floats_in_c a, floats_in_c b, floats_in_c c)
{
    for (int i = 0; i < VW; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

#define vf_fma(a, b, c) fma_in_c(a, b, c)
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)

/* VPDPBUSD: adds to each 32-bit sum the dot product of 4 unsigned bytes of a and 4 signed bytes of
 * b. */
static __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b)
{
    for (int i = 0; i < VW; i++)
        for (int byte = 0; byte < 4; byte++)
            sum[i] += (uint8_t)((uint32_t)a[i] >> 8 * byte) * (int8_t)((uint32_t)b[i] >> 8 * byte);
    return sum;
}

static bool has_avxvnni(void) { return true; }

#endif
