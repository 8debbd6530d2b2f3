/* What processor this is. */
#ifndef BMC_CPU_H
#define BMC_CPU_H

#include "base/base.h"

/* The kernel's name for the processor ("AMD EPYC ..."), or "unknown". */
void cpu_model_name(char *name, size_t size);

#endif
