/* Teams of threads that share the iterations of a loop.
 *
 * Every thread that calls in has a team of its own (a host program may run sessions in several); it is the team's
 * member 0, and the others are workers that wait between loops: first spinning, for some tens of microseconds, then
 * asleep. The caller depends on nobody: it claims iterations like the workers, and waits only for those that have
 * begun one. A worker that the system keeps off its core, because something else runs there, is done without. */
#ifndef BMC_THREADS_H
#define BMC_THREADS_H

#include "base/base.h"

/* Cores that the calling thread may run on (its affinity mask), at least 1. */
int threads_allowed(void);

/* Sets the size of the calling thread's team; n >= 1. Workers are made here, never in a loop, and kept: a smaller team
 * leaves some asleep. Where the system refuses to make one, the team is smaller. Nobody is pinned: on a machine that
 * has other work too the scheduler places threads better. Cheap when n is what it was. A team ends with its caller's
 * thread. */
void threads_set(int n);

/* The size in force, and the size that was asked for. Buffers that every member has one of are made for the latter: a
 * worker that could not be had once may be had the next time. */
int threads_now(void);
int threads_most(void);

/* Index of the calling thread in its team, below threads_now(). */
int threads_self(void);

typedef void threads_body(void *arg, size_t index);

/* Calls body(arg, i) once for each i < n, on the team; returns when all calls have. They begin in increasing order. What
 * the caller wrote before is seen by all calls, and what they wrote by the caller. `work` is the whole loop's, in
 * multiply-accumulates or bytes moved: where waking the team would cost more than it saves, the calling thread does
 * it alone. So it does in a loop within a loop. */
void threads_each(size_t n, size_t work, threads_body *body, void *arg);

/* What the calling thread does between two iterations of its loops, from now on; NULL: nothing. It is short, and runs no loop. */
void threads_between(void (*body)(void *arg), void *arg);

/* Calls body(arg, threads_self()) on every member of the team, at the same time where there are cores enough: to measure
 * the machine. This one does wait for every worker. */
void threads_all(threads_body *body, void *arg);

#endif
