/* AVX2: widening of KV entries. */
#include <immintrin.h>

#define vbl_lookup(table, q)                                                                           \
    ((vbl)_mm256_shuffle_epi8(_mm256_loadu2_m128i((const void *)(table)[1], (const void *)(table)[0]), \
                              (__m256i)(*(q))))
#include "kernel/x86/avx2_begin.h"
#include "kernel/template/widen.h"

WIDEN_FUNCTION(widen_avx2)
