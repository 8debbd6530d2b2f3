/* Starts threads with a stack of their own size. */
#include "base/thread_start.h"

int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
    enum { STACK = 8 << 20 };
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    error = pthread_attr_setstacksize(&attr, STACK);
    if (!error)
        error = pthread_create(thread, &attr, body, arg);
    pthread_attr_destroy(&attr);
    return error;
}
