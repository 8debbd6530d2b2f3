/* What the kernel counts while something runs: page faults, and hardware events where it allows them. */
#ifndef BMC_COUNTERS_H
#define BMC_COUNTERS_H

#include "base/base.h"

/* The hardware events; -1: not available. */
struct counters {
    int64_t minor_faults, major_faults;
    int64_t dtlb_misses, cycles, instructions;
};

/* Open file descriptors of the events. Threads started later are counted, too: so open it before the first parallel
 * region. */
struct counting {
    bool open; /* else the numbers are none */
    int fd[3];
    struct counters begin;
};

void counting_open(struct counting *counting);
void counting_close(struct counting *counting);

/* Begins anew, and what has been counted since. */
void counting_start(struct counting *counting);
struct counters counting_read(const struct counting *counting);

/* The most memory that was resident since the last reset (VmHWM), in bytes; 0 when the kernel does not tell. */
void resident_peak_reset(void);
size_t resident_peak(void);

/* Why hardware events are missing, or NULL. */
const char *counting_refusal(const struct counting *counting);

#endif
