/* Whether the set vnni unpacks types with a grid and TQ1_0 by AVX512-VBMI: faster, with the same results. */
#ifndef BMC_VBMI_H
#define BMC_VBMI_H

#include <stdbool.h>

extern bool vbmi_unpacks; /* set by kernels_setup(), where the CPU has VBMI; tests change it */

#endif
