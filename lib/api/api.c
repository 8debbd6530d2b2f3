/* Errors, versioned structures, locks and lives of the objects of the public API. */
#include "api/api.h"

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* BMC_RELEASE and BMC_FLAGS come from the Makefile. */
const char *bmc_version(void) { return BMC_RELEASE; }

const char *bmc_build(void) { return COMPILER ", " BMC_FLAGS; }

int api_status(int rc, const struct err *err, enum bmc_status otherwise, struct bmc_error *error)
{
    static const enum bmc_status status[] = {[ERR_INVALID] = BMC_INVALID,
                                             [ERR_NO_MEMORY] = BMC_NO_MEMORY,
                                             [ERR_FULL] = BMC_FULL,
                                             [ERR_INTERRUPTED] = BMC_CANCELLED,
                                             [ERR_BUSY] = BMC_BUSY};
    if (rc == 0)
        return BMC_OK;
    if (error)
        api_name_members(err->text, error->text, sizeof error->text);
    return err->code == ERR_FAILED ? otherwise : status[err->code];
}

bool api_progress(const struct bmc_context *c, size_t done, size_t total, struct err *err)
{
    if (!c->progress || !c->progress(c->arg, done, total))
        return true;
    err_code(err, ERR_INTERRUPTED, "cancelled by the option `progress`");
    return false;
}

void api_log(const struct bmc_context *c, enum bmc_log_level level, const char *format, ...)
{
    char sentence[1024];
    va_list args;
    if (!c->log)
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    c->log(c->arg, level, sentence);
}

int api_read(void *to, size_t size, const void *from, size_t least, const char *name, struct err *err)
{
    size_t given;
    memcpy(&given, from, sizeof given);
    if (given < least)
        return err_code(err, ERR_INVALID,
                        "the member `size` of struct %s is %zu: set it to sizeof(struct %s)", name,
                        given, name);
    for (size_t i = size; i < given; i++)
        if (((const char *)from)[i])
            return err_code(err, ERR_INVALID,
                            "struct %s has members that libbmc %s does not know: the program was "
                            "built for a later version",
                            name, BMC_RELEASE);
    memset(to, 0, size);
    memcpy(to, from, size_min(given, size));
    return 0;
}

void api_write(void *to, size_t size, const void *from, size_t from_size)
{
    memset(to, 0, size);
    memcpy(to, from, size_min(size, from_size));
    memcpy(to, &size, sizeof size);
}

/* ---- locks and lives ---- */

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
