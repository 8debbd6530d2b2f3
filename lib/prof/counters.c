/* Counts page faults and hardware events. */
#include "prof/counters.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_head.h"

enum { EVENT_DTLB, EVENT_CYCLES, EVENT_INSTRUCTIONS };

static int open_event(uint32_t type, uint64_t config)
{
    struct perf_event_attr event = {.type = type,
                                    .size = sizeof event,
                                    .config = config,
                                    .inherit = 1,
                                    .exclude_kernel = 1,
                                    .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
}

void counting_open(struct counting *counting)
{
    counting->fd[EVENT_DTLB] =
        open_event(PERF_TYPE_HW_CACHE, PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                           PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
    counting->fd[EVENT_CYCLES] = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
    counting->fd[EVENT_INSTRUCTIONS] = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
    counting->open = true;
    counting_start(counting);
}

void counting_close(struct counting *counting)
{
    for (size_t i = 0; i < ARRAY_LEN(counting->fd); i++)
        if (counting->open && counting->fd[i] >= 0)
            close(counting->fd[i]);
    counting->open = false;
}

static int64_t read_event(int fd)
{
    int64_t value;
    return fd >= 0 && read(fd, &value, sizeof value) == sizeof value ? value : -1;
}

static struct counters read_all(const struct counting *counting)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct counters){usage.ru_minflt, usage.ru_majflt, read_event(counting->fd[EVENT_DTLB]),
                             read_event(counting->fd[EVENT_CYCLES]),
                             read_event(counting->fd[EVENT_INSTRUCTIONS])};
}

void counting_start(struct counting *counting) { counting->begin = read_all(counting); }

static int64_t since(int64_t now, int64_t begin) { return now < 0 || begin < 0 ? -1 : now - begin; }

struct counters counting_read(const struct counting *counting)
{
    const struct counters now = read_all(counting), *begin = &counting->begin;
    return (struct counters){
        now.minor_faults - begin->minor_faults, now.major_faults - begin->major_faults,
        since(now.dtlb_misses, begin->dtlb_misses), since(now.cycles, begin->cycles),
        since(now.instructions, begin->instructions)};
}

void resident_peak_reset(void)
{
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, "5", 1); /* if refused, the peak since process start remains */
    close(fd);
}

size_t resident_peak(void) { return file_proc_bytes("/proc/self/status", "VmHWM"); }

const char *counting_refusal(const struct counting *counting)
{
    for (size_t i = 0; i < ARRAY_LEN(counting->fd); i++)
        if (counting->fd[i] < 0)
            return "the kernel gives no hardware counters here (perf_event_open): their columns are "
                   "empty";
    return NULL;
}
