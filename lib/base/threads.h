/* The OpenMP team. Every parallel region says num_threads(threads_for(work)): OpenMP's own default
 * stays 1, so that a BLAS call on one thread stays on it. */
#ifndef BMC_THREADS_H
#define BMC_THREADS_H

#include "base/base.h"

/* Cores that this process may run on (its affinity mask), at least 1. */
int threads_allowed(void);

/* Sets the size of the calling thread's team; n >= 1. */
void threads_set(int n);

/* The same for a library call: what enter returns, leave puts back, so that a host program's own OpenMP stays as it
 * was. */
int threads_enter(int n) MUST_USE;
void threads_leave(int before);

/* The size in force. */
int threads_now(void);

/* The size for a region of `work` multiply-accumulates, or bytes moved: 1 where waking the team would
 * cost more than it saves. */
int threads_for(size_t work);

/* Index of the calling thread in its team, below threads_now(). */
int threads_self(void);

#endif
