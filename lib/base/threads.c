/* The OpenMP team. */
#include "base/threads.h"

#include <omp.h>
#include <sched.h>

enum { WORTH_WAKING = 1 << 19 };

/* Of the calling thread: a host program may run sessions in several. */
static _Thread_local int team = 1;

int threads_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

int threads_enter(int n)
{
    const int before = omp_get_max_threads();
    threads_set(n);
    return before;
}

void threads_leave(int before) { omp_set_num_threads(before); }

void threads_set(int n)
{
    omp_set_num_threads(1);
    team = n;
}

int threads_now(void) { return team; }

int threads_for(size_t work) { return work < WORTH_WAKING ? 1 : team; }

int threads_self(void) { return omp_get_thread_num(); }
