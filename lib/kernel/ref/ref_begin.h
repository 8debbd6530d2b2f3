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

#define INT8_MR                                 3
#define INT8_BLOCKS                             1
#define CHANNEL_MR                              3
#define CHANNEL_BLOCKS                          1
#define SMALLM_MR                               4
#define SMALLM_BLOCKS                           1
#define SMALLM_LOW_MR                           4
#define SMALLM_HIGH_MR                          4
#define SMALLM_FEW_MR                           2
#define SMALLM_FEW_BLOCKS                       2
#define SMALLM_MAX                              8
#define SMALLM_HEIGHTS(SINGLE, LOW, HIGH, type) HIGH(type, 4)

#endif
