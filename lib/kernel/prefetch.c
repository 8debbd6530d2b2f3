/* Defines the variable for this processor's prefetch strategy, which kernels.c sets. */
#include "kernel/prefetch.h"

bool prefetch_l2;
