/* Begin header of portable C: vectors of 4 floats, which compilers support on every CPU. Kernel
 * templates (vec.h) that are included without a begin header use this one. */
#pragma once

#define TUNING         TUNING_REF
#define SMALLM_HEIGHTS HEIGHTS_4

#define VW 4
/* This vf_fma() rounds twice, unlike an FMA instruction, so dequantisation uses dequantize.h. */
#define VF_FMA_UNFUSED
#define vf_fma(a, b, c) ((a) * (b) + (c))
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
