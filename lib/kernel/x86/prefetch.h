/* The prefetch strategy for products of few rows (smallm_int8.h). */
#ifndef BMC_PREFETCH_H
#define BMC_PREFETCH_H

#include "base/base.h"

/* True: prefetch weights into L2. AMD processors have few line fill buffers for L1, so single tiles
 * prefetch several streams into L2, and several tiles share longer K slabs. kernels_setup() sets it
 * by CPU; tests set it, too. Results do not depend on it. */
extern bool prefetch_l2;

#endif
