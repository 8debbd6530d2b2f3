/* Traits of this processor by which kernels choose a strategy; results do not depend on them. kernels_setup() sets
 * them; tests set them, too. */
#pragma once

#include "base/base.h"

/* Products of few activation rows (smallm_int8.h) prefetch weights into L2, as AMD processors have few line fill
 * buffers for L1: a single activation row prefetches several weight blocks in parallel, and several tiles of rows
 * share longer K slabs. */
extern bool prefetch_l2;

/* The set vnni unpacks LOOKUP_TYPES by AVX512-VBMI and GFNI, which is faster. */
extern bool vbmi_unpacks;
