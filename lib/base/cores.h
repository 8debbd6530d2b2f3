/* The CPU's model name, the cores that threads run on, and NUMA nodes. */
#pragma once

#include <sched.h>

#include "base/err.h"

/* The CPU's model name as the kernel reports it ("AMD EPYC ..."), or "unknown". */
void cpu_model_name(char *name, size_t size);

/* Bytes of a core's cache of level 2, or of the largest of level 3; 0: unknown, as under musl. */
size_t cpu_cache_bytes(int level);

/* The next functions choose cores, among those that the calling thread may use, for this thread and all
 * that it creates later. */

/* The cores of a hexadecimal mask, as taskset(1) takes: the lowest bit is core 0. */
int cpu_use_mask(const char *hex, struct err *err);
int cpu_check_mask(const char *hex, struct err *err); /* whether it is one */

/* The fastest cores: the performance cores of hybrid processors, or those of the largest capacity
 * (ARM); all, where cores do not differ. `sysfs` is "/sys". */
int cpu_use_fastest(const char *sysfs, struct err *err);

/* ---- NUMA nodes: binds threads to them, and places memory on them ---- */

enum { NUMA_NODES = 64 };

struct numa_node {
    unsigned id; /* the kernel's number, below NUMA_NODES */
    cpu_set_t cores;
};

/* The nodes that have cores which the calling thread may use, by ascending id. n is 1 on other systems. */
struct numa {
    size_t n;
    struct numa_node node[NUMA_NODES];
};

/* Reads the nodes of this machine. `sysfs` is "/sys". */
void numa_read(struct numa *numa, const char *sysfs);

/* Distributes `threads` threads over the nodes in proportion to their cores: node i has threads
 * [first[i], first[i + 1]) of a team. */
void numa_distribute(const struct numa *numa, size_t threads, size_t first[NUMA_NODES + 1]);

/* Sets the size of the calling thread's team, and binds each member to the cores of its node. Memory that
 * members allocate from now on is interleaved over the nodes, that of threads which they create, too. */
void numa_bind_team(const struct numa *numa, size_t threads);

/* Place pages that are not yet populated: on one node, as long as it has memory, or interleaved over all. Whole
 * pages of `page` bytes, to which both ends are rounded. Ignored where the kernel has no such nodes. */
void numa_place(const struct numa *numa, size_t node, void *from, size_t bytes, size_t page);
void numa_interleave(const struct numa *numa, void *from, size_t bytes);
