/* The functions of libOpenCL that this backend calls, and the constants that they take: no header of OpenCL is needed to
 * build it. Handles are pointers; functions return 0, or an error's number below 0. */
#pragma once

#include "base/base.h"

enum {
    CL_DEVICE_TYPE_CPU = 1 << 1,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_DEVICE_TYPE_ALL = 0xffffffff,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_ADDRESS_BITS = 0x100d,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_DEVICE_VERSION = 0x102f,
    CL_DEVICE_PLATFORM = 0x1031,
    CL_DEVICE_SVM_CAPABILITIES = 0x1053,
    CL_DEVICE_SVM_COARSE = 1,
    CL_PLATFORM_NAME = 0x0902,
    CL_PLATFORM_VERSION = 0x0901,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_EXEC_INFO_SVM_PTRS = 0x11b6,
    CL_MEM_READ_WRITE = 1,
    CL_BLOCKING = 1
};

enum cl_status {
    CL_DEVICE_NOT_FOUND = -1,
    CL_DEVICE_NOT_AVAILABLE = -2,
    CL_COMPILER_NOT_AVAILABLE = -3,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_INVALID_COMMAND_QUEUE = -36,
    CL_INVALID_WORK_GROUP_SIZE = -54,
    CL_PLATFORM_NOT_FOUND = -1001 /* of the ICD loader */
};

struct cl_api {
    int32_t (*get_platforms)(uint32_t n, void **platform, uint32_t *found);
    int32_t (*get_devices)(void *platform, uint64_t type, uint32_t n, void **device, uint32_t *found);
    int32_t (*platform_info)(void *platform, uint32_t what, size_t size, void *to, size_t *bytes);
    int32_t (*device_info)(void *device, uint32_t what, size_t size, void *to, size_t *bytes);
    void *(*create_context)(const intptr_t *properties, uint32_t n, void *const *device, void *notify,
                            void *arg, int32_t *status);
    void *(*create_queue)(void *context, void *device, uint64_t properties, int32_t *status);
    void *(*create_with_source)(void *context, uint32_t n, const char **text, const size_t *bytes,
                                int32_t *status);
    void *(*create_with_binary)(void *context, uint32_t n, void *const *device, const size_t *bytes,
                                const unsigned char **binary, int32_t *each, int32_t *status);
    int32_t (*build)(void *program, uint32_t n, void *const *device, const char *options, void *notify,
                     void *arg);
    int32_t (*program_info)(void *program, uint32_t what, size_t size, void *to, size_t *bytes);
    int32_t (*build_info)(void *program, void *device, uint32_t what, size_t size, void *to,
                          size_t *bytes);
    int32_t (*release_program)(void *program);
    void *(*create_kernel)(void *program, const char *name, int32_t *status);
    int32_t (*set_arg)(void *kernel, uint32_t index, size_t bytes, const void *value);
    int32_t (*set_exec_info)(void *kernel, uint32_t what, size_t bytes, const void *value);
    int32_t (*enqueue_kernel)(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                              const size_t *global, const size_t *local, uint32_t n_events,
                              void *const *events, void **event);
    void *(*svm_alloc)(void *context, uint64_t flags, size_t bytes, uint32_t alignment);
    void (*svm_free)(void *context, void *block);
    int32_t (*enqueue_svm_copy)(void *queue, uint32_t blocking, void *to, const void *from,
                                size_t bytes, uint32_t n_events, void *const *events, void **event);
    int32_t (*enqueue_svm_fill)(void *queue, void *to, const void *pattern, size_t pattern_bytes,
                                size_t bytes, uint32_t n_events, void *const *events, void **event);
    int32_t (*enqueue_marker)(void *queue, uint32_t n_events, void *const *events, void **event);
    int32_t (*wait_events)(uint32_t n, void *const *events);
    int32_t (*release_event)(void *event);
    int32_t (*flush)(void *queue);
    int32_t (*finish)(void *queue);
};
