/* Thread teams for parallel loops.
 *
 * Each calling thread has its own team (a host program may run sessions in several threads): the
 * caller is member 0, the others are workers, which spin for some tens of microseconds between
 * loops, then sleep. The caller claims iterations like the workers and waits only for iterations in
 * progress: a worker that lost its core to another process does not delay the loop. */
#pragma once

#include "base/base.h"
#include <pthread.h>

/* Cores in the calling thread's affinity mask, or fewer if the CPU quota of a control group is smaller; at least
 * 1. */
int threads_allowed(void);

/* Makes threads_allowed() return the present number in the calling thread, although it will be bound to fewer. */
void threads_keep_allowed(void);

/* Sets the size of the calling thread's team; n >= 1. Creates workers, which are kept: in a smaller
 * team the others sleep. If the system refuses to create a thread, the team is smaller than n.
 * Threads are not pinned: on a shared machine the scheduler places them better (but cores.h). Cheap if n is
 * unchanged. A team ends with its caller's thread. */
void threads_set(int n);

/* The team's actual size (threads_now) and requested size (threads_max). Allocate per-thread
 * buffers for the latter: a worker that could not be created may be created later. */
int threads_now(void);
int threads_max(void);

/* Index of the calling thread in its team, below threads_now(). */
int threads_self(void);

typedef void threads_body(void *arg, size_t index);

/* Calls body(arg, i) once for each i < n, started in increasing order, and returns when all calls
 * have returned. Calls see the caller's earlier writes; the caller then sees theirs. `work`
 * estimates the whole loop in multiply-accumulates or bytes moved: small loops run on the calling
 * thread alone, since waking the team would cost more. Nested loops run there, too. */
void parallel_for(size_t n, size_t work, threads_body *body, void *arg);

/* Time that the calling thread has spent at the ends of its loops, waiting for iterations of the others. */
double threads_waited_ms(void);

/* Sets a hook that the calling thread runs after each iteration of its loops; NULL: none. The hook
 * must be short and must not run loops. */
void threads_idle_hook(void (*body)(void *arg), void *arg);

/* Calls the calling thread's hook, if it has one: for iterations that take long. */
void threads_idle(void);

/* Calls body(arg, threads_self()) on every member of the team, in parallel if there are enough
 * cores, and waits for all. For measuring the machine. */
void threads_all(threads_body *body, void *arg);

/* pthread_create() with signals blocked, which the other threads handle, and a stack of 8 MiB, whatever `ulimit -s` and
 * the C library's default; its pages take memory only once touched. */
int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);
