/* A preloaded library that makes calls to an OpenCL device fail: from the BMC_FAIL_AT-th on, those that BMC_FAIL_CALL names
 * ("launch", "lost", which is a launch with another status, "copy", "alloc"). Without BMC_FAIL_AT they are counted only; their number is written to standard error at
 * exit. The library of OpenCL is loaded by dlopen(), so its functions are replaced where dlsym() finds them. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long calls;

static int32_t (*launch)(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                         const size_t *global, const size_t *local, uint32_t n, void *events,
                         void *event);
static int32_t (*copy)(void *queue, uint32_t blocking, void *to, const void *from, size_t bytes,
                       uint32_t n, void *events, void *event);
static void *(*alloc)(void *context, uint64_t flags, size_t bytes, uint32_t alignment);

static bool fails(const char *call)
{
    const char *chosen = getenv("BMC_FAIL_CALL"), *at = getenv("BMC_FAIL_AT");
    if (!chosen || strcmp(chosen, call) != 0)
        return false;
    const long n = atomic_fetch_add(&calls, 1) + 1;
    return at && n >= atol(at);
}

__attribute__((destructor)) static void print_calls(void)
{
    if (!getenv("BMC_FAIL_AT"))
        fprintf(stderr, "%ld\n", atomic_load(&calls));
}

static int32_t try_launch(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                          const size_t *global, const size_t *local, uint32_t n, void *events,
                          void *event)
{
    enum { OUT_OF_RESOURCES = -5, INVALID_COMMAND_QUEUE = -36 };
    return fails("launch") ? OUT_OF_RESOURCES
           : fails("lost") ? INVALID_COMMAND_QUEUE
                           : launch(queue, kernel, dimensions, offset, global, local, n, events, event);
}

static int32_t try_copy(void *queue, uint32_t blocking, void *to, const void *from, size_t bytes,
                        uint32_t n, void *events, void *event)
{
    enum { INVALID_COMMAND_QUEUE = -36 };
    return fails("copy") ? INVALID_COMMAND_QUEUE
                         : copy(queue, blocking, to, from, bytes, n, events, event);
}

static void *try_alloc(void *context, uint64_t flags, size_t bytes, uint32_t alignment)
{
    return fails("alloc") ? NULL : alloc(context, flags, bytes, alignment);
}

/* Keeps the function in *real; returns what replaces it. */
#define REPLACE(real, by) (memcpy(&(real), &found, sizeof found), (void *)(by))

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *handle, const char *name);
    if (!next) {
        void *const own = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        memcpy(&next, &own, sizeof own);
    }
    void *const found = next(handle, name);
    return strcmp(name, "clEnqueueNDRangeKernel") == 0 ? REPLACE(launch, try_launch)
           : strcmp(name, "clEnqueueSVMMemcpy") == 0   ? REPLACE(copy, try_copy)
           : strcmp(name, "clSVMAlloc") == 0           ? REPLACE(alloc, try_alloc)
                                                       : found;
}
