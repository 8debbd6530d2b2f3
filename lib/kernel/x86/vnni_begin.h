/* Begin header of AVX512-VNNI, included before kernel templates (vec.h): vpdpbusd adds to each
 * int32_t lane the products of 4 unsigned weights and 4 signed activations; vpdpwssd those of 2
 * pairs of int16_t. */
#pragma once

#define TUNING         TUNING_VNNI
#define SMALLM_HEIGHTS HEIGHTS_VNNI

#define vi_dot4(sum, u, s) ((vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(u), (__m512i)(s)))
#define vi_dot2(sum, a, b) ((vi)_mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b)))
#define vi_dot4_word(sum, w, at)                                                                       \
    __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0"                                                    \
                     : "+v"(sum)                                                                       \
                     : "v"(w), "m"(*(const int32_t *)(const void *)(at)))
#include "kernel/x86/vec_512.h"
