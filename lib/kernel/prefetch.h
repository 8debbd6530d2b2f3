/* The prefetch strategy for products of few activation rows (smallm_int8.h). */
#ifndef BMC_PREFETCH_H
#define BMC_PREFETCH_H

#include "base/base.h"

/* If true, weights are prefetched into L2, as AMD processors have few line fill buffers for L1: a
 * single activation row prefetches several weight blocks in parallel, and several tiles of rows
 * share longer K slabs. kernels_setup() sets it by CPU; tests set it, too. Results do not depend on
 * it. */
extern bool prefetch_l2;

#endif
