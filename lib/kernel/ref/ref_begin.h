/* Begin header of portable C: vectors of 4 floats, which compilers support on every CPU. Kernel
 * templates (vec.h) that are included without a begin header use this one. */
#ifndef BMC_REF_BEGIN_H
#define BMC_REF_BEGIN_H

#define VW 4
/* This vf_fma() rounds twice, unlike an FMA instruction, so dequantisation uses dequantize.h. */
#define VF_FMA_UNFUSED
#define vf_fma(a, b, c) ((a) * (b) + (c))
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)

#define MR         1
#define PANEL_SUMS 2

#define INT8_MR    3
#define CHANNEL_MR 3
#include "kernel/template/small_tiles.h"

#endif
