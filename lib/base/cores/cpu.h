/* The CPU's model name; the cores that threads run on. */
#ifndef BMC_CPU_H
#define BMC_CPU_H

#include <sched.h>

#include "base/err.h"

/* The CPU's model name as the kernel reports it ("AMD EPYC ..."), or "unknown". */
void cpu_model_name(char *name, size_t size);

/* The next functions choose cores, among those that the calling thread may use, for this thread and all
 * that it creates later. */

/* The cores of a hexadecimal mask, as taskset(1) takes: the lowest bit is core 0. */
int cpu_use_mask(const char *hex, struct err *err);
int cpu_check_mask(const char *hex, struct err *err); /* whether it is one */

/* The fastest cores: the performance cores of hybrid processors, or those of the largest capacity
 * (ARM); all, where cores do not differ. `sysfs` is "/sys". */
int cpu_use_fastest(const char *sysfs, struct err *err);

/* Reads a list of cores such as "0-7,16" from a file of sysfs; false if there is none. */
bool cpu_read_list(const char *path, cpu_set_t *set);

#endif
