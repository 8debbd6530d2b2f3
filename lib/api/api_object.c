/* Locks and lives of the objects of the public API. */
#include "api/api_object.h"

void api_object_open(struct api_object *o, struct api_object *from, bool shares,
                     void (*free)(struct api_object *object))
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK); /* it knows the thread that has it */
    pthread_mutex_init(&o->own, &attr);
    pthread_mutexattr_destroy(&attr);
    o->from = from;
    o->free = free;
    o->lock = shares ? from->lock : &o->own;
    atomic_store(&o->holders, 1);
    if (from)
        atomic_fetch_add(&from->holders, 1);
}

void api_object_drop(struct api_object *o)
{
    while (o && atomic_fetch_sub(&o->holders, 1) == 1) {
        struct api_object *from = o->from;
        pthread_mutex_t *lock = o->lock;
        /* what it shares may be in use; by this thread, if a function of the caller closes it */
        const bool locked = lock != &o->own && pthread_mutex_lock(lock) == 0;
        pthread_mutex_destroy(&o->own);
        o->free(o);
        if (locked)
            pthread_mutex_unlock(lock);
        o = from;
    }
}

int api_given(const void *argument, const char *name, struct err *err)
{
    return argument ? 0 : err_code(err, ERR_INVALID, "`%s` is NULL", name);
}

int api_enter(struct api_object *o, const char *kind, struct err *err)
{
    if (api_given(o, kind, err) < 0)
        return -1;
    atomic_fetch_add(&o->holders, 1);
    if (pthread_mutex_lock(o->lock) == 0)
        return 0;
    api_object_drop(o);
    return err_code(
        err, ERR_BUSY,
        "the %s is in use by the call that runs this function of the program: functions that the "
        "library calls cannot use it",
        kind);
}

void api_leave(struct api_object *o)
{
    pthread_mutex_unlock(o->lock);
    api_object_drop(o);
}
