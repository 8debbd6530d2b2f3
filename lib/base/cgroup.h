/* Limits of the control groups (cgroups, version 1 and 2) that this process is in, as containers and services
 * have: the smallest of its group and those above. Files that are missing or malformed set no limit. `root` is ""
 * for the system, or a folder that stands for it. */
#pragma once

#include "base/base.h"

/* CPU quota in cores, rounded up; SIZE_MAX: none. */
size_t cgroup_cpus(const char *root);

/* Bytes that the groups may still allocate, with cached pages of files counted as free; SIZE_MAX: no limit. */
size_t cgroup_memory(const char *root);

/* A count that grows when memory is short: by 1 for each time that a group of version 2 met memory.high or memory.max, and for
 * each 100 ms that processes of it, or of the system, waited for memory (PSI). */
size_t cgroup_memory_strain(const char *root);
