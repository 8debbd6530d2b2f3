/* The CPU's model name. */
#ifndef BMC_CPU_H
#define BMC_CPU_H

#include "base/base.h"

/* The CPU's model name as the kernel reports it ("AMD EPYC ..."), or "unknown". */
void cpu_model_name(char *name, size_t size);

#endif
