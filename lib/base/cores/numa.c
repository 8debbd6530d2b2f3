/* NUMA nodes. */
#include "base/cores/numa.h"

#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cores/cpu.h"
#include "base/threads.h"

void numa_read(struct numa *numa, const char *sysfs)
{
    cpu_set_t allowed;
    *numa = (struct numa){0};
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        CPU_ZERO(&allowed);
    for (unsigned id = 0; id < NUMA_NODES; id++) {
        char path[4096];
        cpu_set_t cores;
        snprintf(path, sizeof path, "%s/devices/system/node/node%u/cpulist", sysfs, id);
        if (!cpu_read_list(path, &cores))
            continue;
        CPU_AND(&cores, &cores, &allowed);
        if (CPU_COUNT(&cores))
            numa->node[numa->n++] = (struct numa_node){id, cores};
    }
    if (numa->n == 0)
        numa->node[numa->n++].cores = allowed;
}

void numa_distribute(const struct numa *numa, size_t threads, size_t first[NUMA_NODES + 1])
{
    size_t all = 0, before = 0;
    for (size_t i = 0; i < numa->n; i++)
        all += (size_t)CPU_COUNT(&numa->node[i].cores);
    for (size_t i = 0; i < numa->n; i++) {
        first[i] = all ? threads * before / all : 0;
        before += (size_t)CPU_COUNT(&numa->node[i].cores);
    }
    first[numa->n] = threads;
}

/* The bits of all nodes. */
static unsigned long node_mask(const struct numa *numa)
{
    unsigned long mask = 0;
    for (size_t i = 0; i < numa->n; i++)
        mask |= 1ul << numa->node[i].id;
    return mask;
}

struct binding {
    const struct numa *numa;
    const size_t *first;
};

static void bind_member(void *arg, size_t member)
{
    const struct binding *b = arg;
    const unsigned long mask = node_mask(b->numa);
    size_t node = 0;
    while (node + 1 < b->numa->n && member >= b->first[node + 1])
        node++;
    sched_setaffinity(0, sizeof(cpu_set_t), &b->numa->node[node].cores);
    syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &mask, NUMA_NODES + 1);
}

void numa_bind_team(const struct numa *numa, size_t threads)
{
    size_t first[NUMA_NODES + 1];
    numa_distribute(numa, threads, first);
    threads_set((int)threads);
    threads_keep_allowed();
    threads_all(bind_member, &(struct binding){numa, first});
}

static void set_policy(void *from, size_t bytes, int mode, unsigned long mask)
{
    if (bytes)
        syscall(SYS_mbind, from, bytes, mode, &mask, NUMA_NODES + 1, 0);
}

/* The multiple of `page` nearest to an address. */
static uintptr_t nearest(const void *at, size_t page)
{
    return ((uintptr_t)at + page / 2) / page * page;
}

void numa_place(const struct numa *numa, size_t node, void *from, size_t bytes, size_t page)
{
    char *at = from;
    const uintptr_t begin = nearest(at, page), end = nearest(at + bytes, page);
    set_policy(at + (begin - (uintptr_t)at), end - begin, MPOL_PREFERRED, 1ul << numa->node[node].id);
}

void numa_interleave(const struct numa *numa, void *from, size_t bytes)
{
    set_policy(from, bytes, MPOL_INTERLEAVE, node_mask(numa));
}
