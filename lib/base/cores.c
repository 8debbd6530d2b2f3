/* The CPU's model name, and the cores that threads run on. */
#include "base/cores.h"

#include <ctype.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_head.h"
#include "base/text_util.h"
#include "base/threads.h"

size_t cpu_cache_bytes(int level)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long bytes = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : 0;
#else
    (void)level;
    return 0;
#endif
}

void cpu_model_name(char *name, size_t size)
{
    static const char key[] = "model name";
    char text[4096]; /* beginning of /proc/cpuinfo: the first processor */
    text[file_head("/proc/cpuinfo", text, sizeof text - 1)] = 0;
    const char *line = strstr(text, key), *value = line ? strchr(line, ':') : NULL;
    if (value)
        value += 1 + strspn(value + 1, " \t");
    else
        value = "unknown";
    snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
}

/* ---- cores ---- */

/* Restricts the calling thread to the cores of `wanted` that it may use; `option` is for the message. */
static int use_cores(const cpu_set_t *wanted, const char *option, struct err *err)
{
    cpu_set_t allowed, both;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return err_errno(err, "%s: cannot read the cores of this process", option);
    CPU_AND(&both, wanted, &allowed);
    if (CPU_COUNT(&both) == 0)
        return err_set(err, "%s: this process may run on none of these cores (see taskset -p)", option);
    if (sched_setaffinity(0, sizeof both, &both) < 0)
        return err_errno(err, "%s: cannot choose cores", option);
    return 0;
}

static int read_mask(const char *hex, cpu_set_t *wanted, struct err *err)
{
    const char *given = hex;
    CPU_ZERO(wanted);
    if (hex[0] == '0' && (hex[1] == 'x' || hex[1] == 'X'))
        hex += 2;
    const size_t n = strlen(hex);
    if (n == 0 || strspn(hex, "0123456789abcdefABCDEF") != n || n > CPU_SETSIZE / 4)
        return err_set(err,
                       "--cpu-mask \"%s\": is no mask of up to %d cores in hexadecimal, as ff for the "
                       "first eight",
                       excerpt_of(given, strlen(given)).text, CPU_SETSIZE);
    for (size_t i = 0; i < n; i++) {
        const char digit = hex[n - 1 - i];
        const int value = isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10;
        for (size_t bit = 0; bit < 4; bit++)
            if (value >> bit & 1)
                CPU_SET(4 * i + bit, wanted);
    }
    return CPU_COUNT(wanted) ? 0
                             : err_set(err, "--cpu-mask \"%s\": names no core",
                                       excerpt_of(given, strlen(given)).text);
}

int cpu_check_mask(const char *hex, struct err *err)
{
    cpu_set_t wanted;
    return read_mask(hex, &wanted, err);
}

int cpu_use_mask(const char *hex, struct err *err)
{
    char option[64];
    cpu_set_t wanted;
    snprintf(option, sizeof option, "--cpu-mask %.40s", hex);
    return read_mask(hex, &wanted, err) < 0 ? -1 : use_cores(&wanted, option, err);
}

/* Reads a list of cores such as "0-7,16" from a file of sysfs; false if there is none. */
static bool cpu_read_list(const char *path, cpu_set_t *set)
{
    char text[1024];
    text[file_head(path, text, sizeof text - 1)] = 0;
    CPU_ZERO(set);
    for (char *at = text; isdigit((unsigned char)*at);) {
        const unsigned long long first = strtoull(at, &at, 10);
        const unsigned long long last = *at == '-' ? strtoull(at + 1, &at, 10) : first;
        for (unsigned long long core = first; core <= last && core < CPU_SETSIZE; core++)
            CPU_SET(core, set);
        at += *at == ',';
    }
    return CPU_COUNT(set) > 0;
}

/* The cores of the largest cpu_capacity; all, if none is known. */
static void read_capacities(const char *sysfs, cpu_set_t *set)
{
    unsigned long long best = 0;
    CPU_ZERO(set);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        char path[4096], text[32];
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%zu/cpu_capacity", sysfs, core);
        text[file_head(path, text, sizeof text - 1)] = 0;
        const unsigned long long capacity = strtoull(text, NULL, 10);
        if (capacity > best)
            CPU_ZERO(set);
        best = capacity > best ? capacity : best;
        if (capacity == best)
            CPU_SET(core, set);
    }
}

int cpu_use_fastest(const char *sysfs, struct err *err)
{
    char path[4096];
    cpu_set_t fastest;
    snprintf(path, sizeof path, "%s/devices/cpu_core/cpus", sysfs); /* Intel's hybrid processors */
    if (!cpu_read_list(path, &fastest))
        read_capacities(sysfs, &fastest);
    return use_cores(&fastest, "--cores performance", err);
}

/* ---- NUMA nodes ---- */

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
