/* Counts page faults and, where the kernel allows it, hardware events (perf_event_open). */
#pragma once

#include "base/base.h"

/* Page faults and hardware events; -1: not available. */
struct counters {
    int64_t minor_faults, major_faults;
    int64_t dtlb_misses, cycles, instructions;
};

/* File descriptors of the performance events. These also count threads started later: open them
 * before the first parallel loop. */
struct counting {
    bool open; /* false: nothing is counted */
    int fd[3];
    struct counters begin;
};

void counting_open(struct counting *counting);
void counting_close(struct counting *counting);

/* Starts counting from 0; counting_read() returns the counts since then. */
void counting_start(struct counting *counting);
struct counters counting_read(const struct counting *counting);

/* Peak resident memory since the last reset (VmHWM), in bytes; 0: unknown. */
void resident_peak_reset(void);
size_t resident_peak(void);

/* Why hardware events are not available; NULL: they are. */
const char *counting_refusal(const struct counting *counting);
