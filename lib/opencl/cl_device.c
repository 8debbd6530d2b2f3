/* Opens the device, and sends commands to it. */
#include "opencl/cl_device.h"

#include <pthread.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/library.h"
#include "base/mem.h"
#include "opencl/cl_api.h"
#include "opencl/cl_source.h"

static struct cl_api cl;

static const struct library_function functions[] = {
    {"clGetPlatformIDs", offsetof(struct cl_api, get_platforms)},
    {"clGetDeviceIDs", offsetof(struct cl_api, get_devices)},
    {"clGetPlatformInfo", offsetof(struct cl_api, platform_info)},
    {"clGetDeviceInfo", offsetof(struct cl_api, device_info)},
    {"clCreateContext", offsetof(struct cl_api, create_context)},
    {"clCreateCommandQueue", offsetof(struct cl_api, create_queue)},
    {"clCreateProgramWithSource", offsetof(struct cl_api, create_with_source)},
    {"clCreateProgramWithBinary", offsetof(struct cl_api, create_with_binary)},
    {"clBuildProgram", offsetof(struct cl_api, build)},
    {"clGetProgramInfo", offsetof(struct cl_api, program_info)},
    {"clGetProgramBuildInfo", offsetof(struct cl_api, build_info)},
    {"clReleaseProgram", offsetof(struct cl_api, release_program)},
    {"clCreateKernel", offsetof(struct cl_api, create_kernel)},
    {"clSetKernelArg", offsetof(struct cl_api, set_arg)},
    {"clSetKernelExecInfo", offsetof(struct cl_api, set_exec_info)},
    {"clEnqueueNDRangeKernel", offsetof(struct cl_api, enqueue_kernel)},
    {"clSVMAlloc", offsetof(struct cl_api, svm_alloc)},
    {"clSVMFree", offsetof(struct cl_api, svm_free)},
    {"clEnqueueSVMMemcpy", offsetof(struct cl_api, enqueue_svm_copy)},
    {"clEnqueueSVMMemFill", offsetof(struct cl_api, enqueue_svm_fill)},
    {"clEnqueueMarkerWithWaitList", offsetof(struct cl_api, enqueue_marker)},
    {"clWaitForEvents", offsetof(struct cl_api, wait_events)},
    {"clReleaseEvent", offsetof(struct cl_api, release_event)},
    {"clFlush", offsetof(struct cl_api, flush)},
    {"clFinish", offsetof(struct cl_api, finish)},
};
static const struct library library = {
    "OpenCL", "ocl-icd-libopencl1, and the driver of a device (pocl-opencl-icd is one for CPUs)",
    functions, ARRAY_LEN(functions)};

enum {
    MOST_PLATFORMS = 16,
    MOST_DEVICES = 16,
    STAGE_BYTES = 4 << 20,
    STAGE_ALIGN = CL_STAGE_ALIGN,
    LAUNCHES_PER_FLUSH = 16
};

struct cl_program {
    const char *file;
    char *options;
    void *handle;
};

struct cl_kernel {
    const char *file, *name;
    char *options;
    void *handle;
    size_t blocks_seen; /* changes of the list of blocks that the driver has been told */
};

/* The device; `lock` is held for every command and table. */
static struct {
    pthread_mutex_t lock;
    void *device, *context, *queue;
    void *exchanging; /* the queue of cl_exchange(); NULL: nothing was exchanged */
    struct cl_limits limits;
    char *cache;
    char platform[256];
    struct cl_program *program;
    size_t n_programs, programs_cap;
    struct cl_kernel **kernel;
    size_t n_kernels, kernels_cap;
    struct cl_program_counts counts;
    void **block;        /* [n_blocks]: those of cl_alloc(), by ascending addresses */
    size_t *block_bytes; /* [n_blocks] */
    size_t n_blocks, blocks_cap, sizes_cap, block_changes;
    uint64_t taken_bytes, most_bytes; /* by all blocks, now and at most */
    char *staging;
    cl_address stage;
    size_t stage_bytes, staged, stage_turns;
    size_t launches;
    bool has_failed;
    struct err failure;
} dev = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Held by the functions of the backend and of its memory that stage (cl_enter()). */
static pthread_mutex_t running;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct err open_failure;
static bool opened;

const struct cl_limits *cl_limits(void) { return &dev.limits; }
struct cl_program_counts cl_program_counts(void) { return dev.counts; }

/* ---- failures ---- */

static const char *status_text(int32_t status)
{
    switch (status) {
    case CL_DEVICE_NOT_AVAILABLE: return "the device is not available";
    case CL_COMPILER_NOT_AVAILABLE: return "the driver has no compiler";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES: return "the device has no memory or other resource left, or was lost";
    case CL_OUT_OF_HOST_MEMORY: return "no memory is left";
    case CL_INVALID_COMMAND_QUEUE: return "the device was lost";
    case CL_INVALID_WORK_GROUP_SIZE: return "a work-group is too large for the device";
    default: return "the driver reports an error";
    }
}

/* Keeps the failure of a command; the lock is held. */
static void check(int32_t status, const char *command)
{
    if (status == 0 || dev.has_failed)
        return;
    dev.has_failed = true;
    const bool memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
                        status == CL_OUT_OF_HOST_MEMORY;
    (void)!err_code(&dev.failure, memory ? ERR_NO_MEMORY : ERR_FAILED,
                    "OpenCL device %s: %s failed with error %d: %s", dev.limits.name, command, status,
                    status_text(status));
}

void cl_fail_memory(void)
{
    pthread_mutex_lock(&dev.lock);
    check(CL_OUT_OF_HOST_MEMORY, "an allocation");
    pthread_mutex_unlock(&dev.lock);
}

int cl_failed(struct err *err)
{
    pthread_mutex_lock(&dev.lock);
    const bool failed = dev.has_failed;
    if (failed)
        *err = dev.failure;
    pthread_mutex_unlock(&dev.lock);
    return failed ? -1 : 0;
}

/* ---- opening ---- */

static uint64_t device_number(void *device, uint32_t what)
{
    uint64_t value = 0;
    return cl.device_info(device, what, sizeof value, &value, NULL) == 0 ? value : 0;
}

/* A better device comes first: GPUs, then accelerators, then CPUs. */
static int device_rank(void *device)
{
    const uint64_t type = device_number(device, CL_DEVICE_TYPE);
    return type & CL_DEVICE_TYPE_GPU ? 2 : type & CL_DEVICE_TYPE_CPU ? 0 : 1;
}

static void *find_device(struct err *err)
{
    void *platform[MOST_PLATFORMS], *device[MOST_DEVICES], *best = NULL;
    uint32_t n_platforms = 0;
    const int32_t status = cl.get_platforms(MOST_PLATFORMS, platform, &n_platforms);
    for (uint32_t p = 0; status == 0 && p < size_min(n_platforms, MOST_PLATFORMS); p++) {
        uint32_t n = 0;
        if (cl.get_devices(platform[p], UINT32_MAX, MOST_DEVICES, device, &n) != 0)
            continue;
        for (uint32_t i = 0; i < size_min(n, MOST_DEVICES); i++)
            if (!best || device_rank(device[i]) > device_rank(best))
                best = device[i];
    }
    if (!best)
        err_set(err,
                "OpenCL has no device (%u platforms): install the driver of one (pocl-opencl-icd is "
                "one for CPUs), or "
                "use --backend cpu",
                n_platforms);
    return best;
}

static void read_limits(void *device)
{
    struct cl_limits *l = &dev.limits;
    void *platform = NULL;
    char version[128] = "";
    cl.device_info(device, CL_DEVICE_NAME, sizeof l->name - 1, l->name, NULL);
    text_make_printable(l->name, strlen(l->name), "");
    cl.device_info(device, CL_DRIVER_VERSION, sizeof l->driver - 1, l->driver, NULL);
    cl.device_info(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    cl.device_info(device, CL_DEVICE_VERSION, sizeof version - 1, version, NULL);
    char name[96] = "";
    cl.platform_info(platform, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    snprintf(dev.platform, sizeof dev.platform, "%s %s", name, version);
    l->memory_bytes = device_number(device, CL_DEVICE_GLOBAL_MEM_SIZE);
    l->block_bytes = device_number(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (!l->block_bytes)
        l->block_bytes = l->memory_bytes;
    l->local_bytes = device_number(device, CL_DEVICE_LOCAL_MEM_SIZE);
    l->group_items = (size_t)device_number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    l->is_cpu = device_rank(device) == 0;
}

static int check_device(void *device, struct err *err)
{
    enum { LEAST_LOCAL = 32 << 10, LEAST_ITEMS = 256 };
    const struct cl_limits *l = &dev.limits;
    if (!(device_number(device, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_COARSE) ||
        device_number(device, CL_DEVICE_ADDRESS_BITS) != 64)
        return err_set(err,
                       "OpenCL device %s has no shared virtual memory of 64-bit addresses, which "
                       "backend opencl needs: "
                       "use --backend cpu",
                       l->name);
    if (l->local_bytes < LEAST_LOCAL || l->group_items < LEAST_ITEMS)
        return err_set(err,
                       "OpenCL device %s has %llu bytes of local memory and work-groups of %zu, of %d "
                       "and %d that backend "
                       "opencl needs: use --backend cpu",
                       l->name, (unsigned long long)l->local_bytes, l->group_items, LEAST_LOCAL,
                       LEAST_ITEMS);
    return 0;
}

static int open_device(struct err *err)
{
    int32_t status;
    if (library_load(&library, "libOpenCL.so.1", &cl, err) < 0 || !(dev.device = find_device(err)))
        return -1;
    read_limits(dev.device);
    if (check_device(dev.device, err) < 0)
        return -1;
    dev.context = cl.create_context(NULL, 1, &dev.device, NULL, NULL, &status);
    if (dev.context)
        dev.queue = cl.create_queue(dev.context, dev.device, 0, &status);
    if (!dev.queue)
        return err_set(err, "OpenCL device %s cannot be opened: error %d: %s", dev.limits.name, status,
                       status_text(status));
    return 0;
}

static void open_once(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&running, &recursive);
    opened = open_device(&open_failure) == 0;
}

void cl_device_cache(const char *folder)
{
    pthread_mutex_lock(&dev.lock);
    if (!dev.cache)
        dev.cache = strdup(folder);
    pthread_mutex_unlock(&dev.lock);
}

int cl_device_open(struct err *err)
{
    pthread_once(&once, open_once);
    if (opened)
        return 0;
    *err = open_failure;
    return -1;
}

void cl_enter(void) { pthread_mutex_lock(&running); }
void cl_leave(void) { pthread_mutex_unlock(&running); }

/* ---- memory ---- */

static inline void *pointer(cl_address at) { return (void *)(uintptr_t)at; }

/* The list of blocks with room for one more; the lock is held. */
static bool grow_blocks(void)
{
    struct err ignored;
    return mem_grow(&dev.block, &dev.blocks_cap, dev.n_blocks, sizeof *dev.block, &ignored) == 0 &&
           mem_grow(&dev.block_bytes, &dev.sizes_cap, dev.n_blocks, sizeof *dev.block_bytes,
                    &ignored) == 0;
}

/* How many blocks begin at or before the address: the last one of these has it, if any has. */
static size_t blocks_before(cl_address at)
{
    size_t low = 0, high = dev.n_blocks;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((cl_address)(uintptr_t)dev.block[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert_block(void *block, size_t bytes)
{
    const size_t at = blocks_before((cl_address)(uintptr_t)block), behind = dev.n_blocks++ - at;
    memmove(dev.block + at + 1, dev.block + at, behind * sizeof *dev.block);
    memmove(dev.block_bytes + at + 1, dev.block_bytes + at, behind * sizeof *dev.block_bytes);
    dev.block[at] = block;
    dev.block_bytes[at] = bytes;
}

cl_address cl_alloc(size_t bytes)
{
    void *block = NULL;
    pthread_mutex_lock(&dev.lock);
    if (bytes <= dev.limits.memory_bytes - dev.taken_bytes && bytes <= dev.limits.block_bytes &&
        grow_blocks())
        block = cl.svm_alloc(dev.context, CL_MEM_READ_WRITE, size_max(bytes, 1), 0);
    if (block) {
        insert_block(block, bytes);
        dev.taken_bytes += bytes;
        dev.most_bytes = size_max(dev.most_bytes, dev.taken_bytes);
        dev.block_changes++;
    }
    pthread_mutex_unlock(&dev.lock);
    return (cl_address)(uintptr_t)block;
}

static void finish_all(void)
{
    check(cl.finish(dev.queue), "clFinish");
    if (dev.exchanging)
        check(cl.finish(dev.exchanging), "clFinish");
}

bool cl_owns(cl_address at)
{
    pthread_mutex_lock(&dev.lock);
    const size_t n = blocks_before(at);
    const bool owns =
        n && at - (cl_address)(uintptr_t)dev.block[n - 1] < size_max(dev.block_bytes[n - 1], 1);
    pthread_mutex_unlock(&dev.lock);
    return owns;
}

/* Commands that use the block may still be in a queue. */
void cl_free(cl_address block)
{
    if (!block)
        return;
    pthread_mutex_lock(&dev.lock);
    finish_all();
    const size_t next = blocks_before(block), behind = dev.n_blocks-- - next;
    assert(next && (cl_address)(uintptr_t)dev.block[next - 1] == block);
    dev.taken_bytes -= dev.block_bytes[next - 1];
    memmove(dev.block + next - 1, dev.block + next, behind * sizeof *dev.block);
    memmove(dev.block_bytes + next - 1, dev.block_bytes + next, behind * sizeof *dev.block_bytes);
    dev.block_changes++;
    cl.svm_free(dev.context, pointer(block));
    pthread_mutex_unlock(&dev.lock);
}

static void copy_bytes(void *to, const void *from, size_t bytes, bool waits)
{
    if (!bytes)
        return;
    pthread_mutex_lock(&dev.lock);
    check(cl.enqueue_svm_copy(dev.queue, waits ? CL_BLOCKING : 0, to, from, bytes, 0, NULL, NULL),
          "clEnqueueSVMMemcpy");
    pthread_mutex_unlock(&dev.lock);
}

void cl_read(void *to, cl_address from, size_t bytes) { copy_bytes(to, pointer(from), bytes, true); }
void cl_write(cl_address to, const void *from, size_t bytes)
{
    copy_bytes(pointer(to), from, bytes, true);
}
void cl_copy_block(cl_address to, cl_address from, size_t bytes)
{
    copy_bytes(pointer(to), pointer(from), bytes, false);
}

void cl_zero(cl_address to, size_t bytes)
{
    const unsigned char zero = 0;
    if (!bytes)
        return;
    pthread_mutex_lock(&dev.lock);
    check(cl.enqueue_svm_fill(dev.queue, pointer(to), &zero, 1, bytes, 0, NULL, NULL),
          "clEnqueueSVMMemFill");
    pthread_mutex_unlock(&dev.lock);
}

uint64_t cl_most_bytes(bool again)
{
    pthread_mutex_lock(&dev.lock);
    if (again)
        dev.most_bytes = dev.taken_bytes;
    const uint64_t most = dev.most_bytes;
    pthread_mutex_unlock(&dev.lock);
    return most;
}

/* ---- copies beside other commands ---- */

void cl_exchange(void **event, void *host, cl_address at, size_t bytes, bool to_host)
{
    void *before = NULL, *now = NULL;
    int32_t status = 0;
    pthread_mutex_lock(&dev.lock);
    if (!dev.exchanging)
        dev.exchanging = cl.create_queue(dev.context, dev.device, 0, &status);
    check(status, "clCreateCommandQueue");
    if (!dev.has_failed)
        check(cl.enqueue_marker(dev.queue, 0, NULL, &before), "clEnqueueMarkerWithWaitList");
    if (!dev.has_failed)
        check(cl.flush(dev.queue), "clFlush");
    if (!dev.has_failed)
        check(cl.enqueue_svm_copy(dev.exchanging, 0, to_host ? host : pointer(at),
                                  to_host ? pointer(at) : host, bytes, 1, &before, &now),
              "clEnqueueSVMMemcpy");
    if (!dev.has_failed)
        check(cl.flush(dev.exchanging), "clFlush");
    if (before)
        cl.release_event(before);
    if (now && *event)
        cl.release_event(*event);
    *event = now ? now : *event;
    pthread_mutex_unlock(&dev.lock);
}

/* The lock is not held meanwhile: others may start commands. */
void cl_wait_event(void **event)
{
    const int32_t status = *event ? cl.wait_events(1, event) : 0;
    pthread_mutex_lock(&dev.lock);
    check(status, "clWaitForEvents");
    if (*event)
        cl.release_event(*event);
    pthread_mutex_unlock(&dev.lock);
    *event = NULL;
}

static void wait_for_all(void)
{
    pthread_mutex_lock(&dev.lock);
    check(cl.finish(dev.queue), "clFinish");
    pthread_mutex_unlock(&dev.lock);
}

/* ---- copies of what operations need ---- */

size_t cl_stage_room(size_t bytes)
{
    if (dev.stage_bytes - dev.staged >= bytes)
        return dev.stage_turns;
    wait_for_all();
    if (dev.stage_bytes < bytes) {
        cl_free(dev.stage);
        free(dev.staging);
        const size_t more = round_up(size_max(2 * bytes, STAGE_BYTES), STAGE_ALIGN);
        dev.stage = cl_alloc(more);
        dev.staging = mem_alloc(more, 1);
        dev.stage_bytes = dev.stage && dev.staging ? more : 0;
        if (!dev.stage_bytes)
            cl_fail_memory();
    }
    dev.staged = 0;
    return ++dev.stage_turns;
}

cl_address cl_stage(const void *from, size_t bytes)
{
    const size_t at = dev.staged, end = round_up(at + bytes, STAGE_ALIGN);
    if (end > dev.stage_bytes)
        return 0; /* out of memory: a failure that is reported */
    memcpy(dev.staging + at, from, bytes);
    copy_bytes(pointer(dev.stage + at), dev.staging + at, bytes, false);
    dev.staged = end;
    return dev.stage + at;
}

/* ---- programs ---- */

/* The path of a program's binary: its name is a hash of all that it depends on. False: there is no folder. */
static bool binary_path(const char *text, const char *options, char *path, size_t size)
{
    struct hasher hasher;
    char name[33];
    const char *const part[] = {dev.platform, dev.limits.name, dev.limits.driver, options, text};
    if (!dev.cache)
        return false;
    hasher_init(&hasher);
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        hasher_add(&hasher, part[i], strlen(part[i]) + 1);
    const struct hash hash = hasher_result(&hasher);
    hash_hex(&hash, 16, name);
    return (size_t)snprintf(path, size, "%s/%s.cl", dev.cache, name) < size;
}

/* The program in a file: a hash of the binary, then the binary. NULL: there is none, or a damaged one. */
static void *load_binary(const char *path, const char *options)
{
    struct file_map map;
    struct err ignored;
    void *program = NULL;
    int32_t status, each;
    if (!file_exists(path) || file_map(&map, path, &ignored) < 0)
        return NULL;
    if (map.size > sizeof(struct hash)) {
        const unsigned char *binary = map.data + sizeof(struct hash);
        const size_t bytes = map.size - sizeof(struct hash);
        const struct hash hash = hash_of(binary, bytes);
        if (memcmp(&hash, map.data, sizeof hash) == 0)
            program =
                cl.create_with_binary(dev.context, 1, &dev.device, &bytes, &binary, &each, &status);
    }
    if (program && cl.build(program, 1, &dev.device, options, NULL, NULL) != 0) {
        cl.release_program(program);
        program = NULL;
    }
    file_unmap(&map);
    return program;
}

/* Nothing depends on the file: failures are ignored. */
static void save_binary(const char *path, void *program)
{
    struct err ignored;
    size_t bytes = 0;
    if (cl.program_info(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != 0 || !bytes)
        return;
    AUTO(free_auto) unsigned char *file = mem_alloc(bytes + sizeof(struct hash), 1);
    unsigned char *binary = file ? file + sizeof(struct hash) : NULL;
    if (!file || cl.program_info(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) != 0)
        return;
    const struct hash hash = hash_of(binary, bytes);
    memcpy(file, &hash, sizeof hash);
    file_make_parents(path);
    (void)!outfile_save_private(path, file, bytes + sizeof hash, &ignored);
}

static int build_failure(void *program, const char *file, struct err *err)
{
    char log[300] = "";
    size_t bytes = 0;
    char *all = cl.build_info(program, dev.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == 0 && bytes
                    ? mem_zalloc(bytes + 1, 1)
                    : NULL;
    if (all && cl.build_info(program, dev.device, CL_PROGRAM_BUILD_LOG, bytes, all, NULL) == 0)
        snprintf(log, sizeof log, "%s", all);
    free(all);
    for (char *at = log; *at; at++)
        if (*at == '\n')
            *at = ' ';
    text_make_printable(log, strlen(log), "");
    return err_set(err, "OpenCL device %s: its driver does not compile %s: %s", dev.limits.name, file,
                   log);
}

static int compile(void **handle, const char *file, const char *options, struct err *err)
{
    AUTO(free_auto) char *text = cl_source(file);
    char path[4096];
    int32_t status;
    if (!text)
        return err_no_memory(err, "the kernels of %s", file);
    const bool cached = binary_path(text, options, path, sizeof path);
    if (cached && (*handle = load_binary(path, options))) {
        dev.counts.found++;
        return 0;
    }
    const char *source = text;
    void *program = cl.create_with_source(dev.context, 1, &source, NULL, &status);
    if (!program)
        return err_set(err, "OpenCL device %s: %s: error %d: %s", dev.limits.name, file, status,
                       status_text(status));
    status = cl.build(program, 1, &dev.device, options, NULL, NULL);
    if (status != 0) {
        (void)!build_failure(program, file, err);
        cl.release_program(program);
        return -1;
    }
    dev.counts.compiled++;
    if (cached)
        save_binary(path, program);
    *handle = program;
    return 0;
}

/* The lock is held here and in the next function. */
static int find_program(void **handle, const char *file, const char *options, struct err *err)
{
    for (size_t i = 0; i < dev.n_programs; i++)
        if (strcmp(dev.program[i].file, file) == 0 && strcmp(dev.program[i].options, options) == 0) {
            *handle = dev.program[i].handle;
            return 0;
        }
    char *own = strdup(options);
    if (!own ||
        mem_grow(&dev.program, &dev.programs_cap, dev.n_programs, sizeof *dev.program, err) < 0 ||
        compile(handle, file, options, err) < 0) {
        free(own);
        return own ? -1 : err_no_memory(err, "a kernel");
    }
    dev.program[dev.n_programs++] = (struct cl_program){file, own, *handle};
    return 0;
}

static int find_kernel(struct cl_kernel **kernel, const char *file, const char *name,
                       const char *options, struct err *err)
{
    void *program;
    int32_t status;
    for (size_t i = 0; i < dev.n_kernels; i++) {
        struct cl_kernel *k = dev.kernel[i];
        if (strcmp(k->file, file) == 0 && strcmp(k->name, name) == 0 &&
            strcmp(k->options, options) == 0) {
            *kernel = k;
            return 0;
        }
    }
    if (mem_grow(&dev.kernel, &dev.kernels_cap, dev.n_kernels, sizeof *dev.kernel, err) < 0 ||
        find_program(&program, file, options, err) < 0)
        return -1;
    struct cl_kernel *k = mem_zalloc(1, sizeof *k);
    char *own = strdup(options);
    if (!k || !own) {
        free(k);
        free(own);
        return err_no_memory(err, "a kernel");
    }
    *k = (struct cl_kernel){file, name, own, cl.create_kernel(program, name, &status), 0};
    if (!k->handle) {
        free(own);
        free(k);
        return err_set(err, "OpenCL device %s: kernel %s of %s: error %d: %s", dev.limits.name, name,
                       file, status, status_text(status));
    }
    *kernel = dev.kernel[dev.n_kernels++] = k;
    return 0;
}

int cl_kernel_open(struct cl_kernel **kernel, const char *file, const char *name, const char *options,
                   struct err *err)
{
    pthread_mutex_lock(&dev.lock);
    const int rc = find_kernel(kernel, file, name, options, err);
    pthread_mutex_unlock(&dev.lock);
    return rc;
}

void cl_launch(struct cl_kernel *kernel, const void *args, size_t args_bytes, const size_t groups[3],
               const size_t local[3])
{
    const size_t global[3] = {groups[0] * local[0], groups[1] * local[1], groups[2] * local[2]};
    if (!global[0] || !global[1] || !global[2])
        return;
    pthread_mutex_lock(&dev.lock);
    if (kernel->blocks_seen != dev.block_changes) { /* kernels follow addresses that are no arguments */
        check(cl.set_exec_info(kernel->handle, CL_KERNEL_EXEC_INFO_SVM_PTRS,
                               dev.n_blocks * sizeof *dev.block, dev.block),
              "clSetKernelExecInfo");
        kernel->blocks_seen = dev.block_changes;
    }
    check(cl.set_arg(kernel->handle, 0, args_bytes, args), "clSetKernelArg");
    if (!dev.has_failed)
        check(cl.enqueue_kernel(dev.queue, kernel->handle, 3, NULL, global, local, 0, NULL, NULL),
              kernel->name);
    if (++dev.launches % LAUNCHES_PER_FLUSH == 0)
        check(cl.flush(dev.queue), "clFlush");
    pthread_mutex_unlock(&dev.lock);
}
