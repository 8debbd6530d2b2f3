/* A preloaded library that makes a call to an OpenCL driver fail: the BMC_FAIL_AT-th of those that BMC_FAIL_CALL names, by
 * the function's name or "any"; with "lost" all calls from the BMC_FAIL_AT-th start of a kernel on. As with fail.c, the number of calls is written to
 * descriptor BMC_FAIL_COUNT at exit, and without BMC_FAIL_AT calls are only counted. The library of OpenCL is loaded by dlopen(), so its
 * functions are replaced where dlsym() finds them. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_OF_RESOURCES = -5, INVALID_COMMAND_QUEUE = -36 };

/* Functions return a status, but for those that return an object or NULL, and write the status to their Nth argument. */
#define FUNCTIONS(X)                                                                                   \
    X(clGetPlatformIDs, 0)                                                                             \
    X(clGetDeviceIDs, 0)                                                                               \
    X(clCreateContext, 6)                                                                              \
    X(clCreateCommandQueue, 4)                                                                         \
    X(clCreateProgramWithSource, 5)                                                                    \
    X(clCreateProgramWithBinary, 7)                                                                    \
    X(clBuildProgram, 0)                                                                               \
    X(clGetProgramInfo, 0)                                                                             \
    X(clCreateKernel, 3)                                                                               \
    X(clSetKernelArg, 0)                                                                               \
    X(clSetKernelExecInfo, 0)                                                                          \
    X(clEnqueueNDRangeKernel, 0)                                                                       \
    X(clEnqueueSVMMemcpy, 0)                                                                           \
    X(clEnqueueSVMMemFill, 0)                                                                          \
    X(clEnqueueMarkerWithWaitList, 0)                                                                  \
    X(clWaitForEvents, 0)                                                                              \
    X(clFlush, 0)                                                                                      \
    X(clFinish, 0)

static atomic_ulong calls;

/* 0, or the status of the call that must fail. */
static int32_t failure(const char *function)
{
    const char *chosen = getenv("BMC_FAIL_CALL"), *at = getenv("BMC_FAIL_AT");
    const unsigned long first = at ? strtoul(at, NULL, 10) : 0;
    const bool lost = chosen && strcmp(chosen, "lost") == 0,
               counts = chosen && (strcmp(chosen, "any") == 0 ||
                                   strcmp(lost ? "clEnqueueNDRangeKernel" : chosen, function) == 0);
    const unsigned long call = counts ? atomic_fetch_add(&calls, 1) + 1 : atomic_load(&calls);
    if (!first || (lost ? call < first : !counts || call != first))
        return 0;
    return lost ? INVALID_COMMAND_QUEUE : OUT_OF_RESOURCES;
}

__attribute__((destructor)) static void print_calls(void)
{
    const char *fd = getenv("BMC_FAIL_COUNT");
    if (fd)
        dprintf(atoi(fd), "%lu\n", atomic_load(&calls));
}

/* Integers and pointers, of which any function takes some: in the calling conventions of Linux, further ones are ignored. */
typedef intptr_t function(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t,
                          intptr_t, intptr_t);

#define DEFINE(name, status_at)                                                                        \
    static function *next_##name;                                                                      \
    static intptr_t try_##name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f, \
                               intptr_t g, intptr_t h, intptr_t i)                                     \
    {                                                                                                  \
        const intptr_t status_to[] = {0, a, b, c, d, e, f, g, h, i};                                   \
        const int32_t status = failure(#name);                                                         \
        if (status && (status_at))                                                                     \
            memcpy((void *)status_to[status_at], &status, sizeof status);                              \
        return !status ? next_##name(a, b, c, d, e, f, g, h, i) : (status_at) ? 0 : (intptr_t)status;  \
    }
FUNCTIONS(DEFINE)

static void *(*next_alloc)(void *context, uint64_t flags, size_t bytes, uint32_t alignment);
static void *try_alloc(void *context, uint64_t flags, size_t bytes, uint32_t alignment)
{
    return failure("clSVMAlloc") == OUT_OF_RESOURCES ? NULL
                                                     : next_alloc(context, flags, bytes, alignment);
}

/* Keeps the function that was found in `next`; returns what replaces it. */
#define REPLACE(next, by) (memcpy(&(next), &found, sizeof found), (void *)(by))
#define REPLACE_NAMED(function, status_at)                                                             \
    if (strcmp(name, #function) == 0)                                                                  \
        return REPLACE(next_##function, try_##function);

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *handle, const char *name);
    if (!next) {
        void *const own = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        memcpy(&next, &own, sizeof own);
    }
    void *const found = next(handle, name);
    FUNCTIONS(REPLACE_NAMED)
    return strcmp(name, "clSVMAlloc") == 0 ? REPLACE(next_alloc, try_alloc) : found;
}
