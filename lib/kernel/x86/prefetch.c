/* The prefetch strategy of this processor: a file of its own, as kernels depend on it alone. */
#include "kernel/x86/prefetch.h"

bool prefetch_l2;
