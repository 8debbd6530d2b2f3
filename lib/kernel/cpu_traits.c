/* Traits of this processor; kernels.c sets them. */
#include "kernel/cpu_traits.h"

bool prefetch_l2, vbmi_unpacks;
