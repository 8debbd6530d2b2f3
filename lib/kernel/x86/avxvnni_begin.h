/* Begin header of AVX-VNNI, included before kernel templates (vec.h): vpdpbusd on the 256-bit
 * registers of AVX2. */
#pragma once

#define TUNING         TUNING_AVX2
#define SMALLM_HEIGHTS HEIGHTS_4

#define vi_dot4(sum, u, s) ((vi)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(u), (__m256i)(s)))

#ifdef AVXVNNI_HEADER /* emulation for machines without it */
#include AVXVNNI_HEADER
#include "kernel/template/vec.h"
#else
#include "kernel/x86/vec_256.h"
#endif
