/* Begin header of AVX512-VNNI, included before kernel templates (vec.h): vpdpbusd adds to each
 * int32_t lane the products of 4 unsigned weights and 4 signed activations; vpdpwssd those of 2
 * pairs of int16_t. */
#ifndef BMC_VNNI_BEGIN_H
#define BMC_VNNI_BEGIN_H

#define MR         6
#define PANEL_SUMS 24

#define INT8_MR           3
#define INT8_BLOCKS       4
#define CHANNEL_MR        4
#define CHANNEL_BLOCKS    4
#define SMALLM_MR         16
#define SMALLM_WIDE_MR    8
#define SMALLM_BLOCKS     2
#define SMALLM_LOW_MR     5
#define SMALLM_HIGH_MR    12
#define SMALLM_FEW_MR     4
#define SMALLM_FEW_BLOCKS 4
#define SMALLM_MAX        80
#define SMALLM_HEIGHTS(SINGLE, LOW, HIGH, type)                                                        \
    SINGLE(type, 5)                                                                                    \
    SINGLE(type, 6)                                                                                    \
    SINGLE(type, 7) SINGLE(type, 8) LOW(type, 10) HIGH(type, 12) HIGH(type, 14) HIGH(type, 16)

#define SMALLM_HAS_TWO

#define vi_dot4(sum, u, s) ((vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(u), (__m512i)(s)))
#define vi_dot2(sum, a, b) ((vi)_mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b)))
#define vi_dot4_word(sum, w, at)                                                                       \
    __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0"                                                    \
                     : "+v"(sum)                                                                       \
                     : "v"(w), "m"(*(const int32_t *)(const void *)(at)))
#include "kernel/x86/vec_512.h"

#endif
