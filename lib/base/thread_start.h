/* Starts threads whose stacks do not depend on `ulimit -s`, nor on the C library's default. */
#ifndef BMC_THREAD_START_H
#define BMC_THREAD_START_H

#include <pthread.h>

/* pthread_create() with a stack of 8 MiB, whose pages take memory only once touched. */
int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);

#endif
