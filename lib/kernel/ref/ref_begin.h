/* Begin header of portable C: vectors of 4 floats, which compilers support on every CPU. Kernel
 * templates (vec.h) that are included without a begin header use this one. */
#pragma once

#include <stdint.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

#define TUNING         TUNING_REF
#define SMALLM_HEIGHTS HEIGHTS_4

#define VW              4
#define vf_fma(a, b, c) ref_fma(a, b, c)
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
/* Weights are dequantised by dequantize.h, which is read more easily than dequantize_lines.h. */
#define DEQUANTIZE_IN_C

typedef float ref_floats __attribute__((vector_size(4 * VW)));
typedef double ref_doubles __attribute__((vector_size(8 * VW)));
typedef int64_t ref_longs __attribute__((vector_size(8 * VW)));

/* Functions with vector arguments are all inlined, so warnings about their ABI do not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* a * b + c with a single rounding, as an FMA instruction computes it. The product is exact in double; the
 * sum is rounded to odd there, with its error found by Knuth's two-sum, and then to nearest in float (Boldo and
 * Melquiond, 2008). Where the compiler has the instruction, it has the same bits, many times faster. */
static inline __attribute__((always_inline)) ref_floats ref_fma(ref_floats a, ref_floats b,
                                                                ref_floats c)
{
#ifdef __FMA__
    return (ref_floats)_mm_fmadd_ps(a, b, c);
#else
    const ref_doubles product = __builtin_convertvector(a, ref_doubles) *
                                __builtin_convertvector(b, ref_doubles),
                      addend = __builtin_convertvector(c, ref_doubles), sum = product + addend,
                      part = sum - product, error = (product - (sum - part)) + (addend - part);
    const ref_longs bits = (ref_longs)sum, inexact = (error > 0) | (error < 0);
    const ref_longs away = 1 | ((bits ^ (ref_longs)error) >> 63); /* 1, or -1 where signs differ */
    return __builtin_convertvector((ref_doubles)(bits + (away & inexact & ((bits & 1) - 1))),
                                   ref_floats);
#endif
}
