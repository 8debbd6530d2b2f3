/* The OpenCL device: one per process, opened once. Commands go to one queue, which runs them in order, so a command sees the
 * memory as the commands before it left it; cl_exchange() has another.
 *
 * A command that fails ends no function that cannot return an error: the first failure is kept, and cl_failed() returns it
 * from then on. */
#pragma once

#include "backend/memory.h"
#include "base/err.h"
#include "opencl/cl_args.h"

struct cl_limits {
    char name[128], driver[128];
    uint64_t memory_bytes, block_bytes; /* in all, and of a block, at most */
    uint64_t local_bytes;
    size_t group_items;
    bool is_cpu; /* its memory and cores are those of the host */
};

/* Loads libOpenCL and opens the first GPU, else the first other device. Further calls return the result of the first. */
int cl_device_open(struct err *err) MUST_USE;

/* Keeps programs in a folder from now on, by device, driver and source. */
void cl_device_cache(const char *folder);
const struct cl_limits *cl_limits(void);

/* Programs compiled in this process, and those found in the folder. */
struct cl_program_counts {
    size_t compiled, found;
};
struct cl_program_counts cl_program_counts(void);

/* ---- memory ---- */

/* A block of the device's memory; 0: none, as it would be larger than the device allows, or all blocks than its memory. Drivers that move memory
 * between device and host might give more. Thread-safe. */
cl_address cl_alloc(size_t bytes);
void cl_free(cl_address block);

/* True if the address is in a block. */
bool cl_owns(cl_address at);

/* Copies between the device's memory and that of the process; waits for commands before it. */
void cl_read(void *to, cl_address from, size_t bytes);
void cl_write(cl_address to, const void *from, size_t bytes);

/* The same within the device's memory, without waiting: blocks must not overlap; bytes to zero. */
void cl_copy_block(cl_address to, cl_address from, size_t bytes);
void cl_zero(cl_address to, size_t bytes);

/* A copy between the device's memory and that of the process by a second queue, which runs them in order, after all commands
 * before it and beside those behind it; cl_wait_event() waits for it, and for those before it that have the same *event, NULL at
 * first. */
void cl_exchange(void **event, void *host, cl_address at, size_t bytes, bool to_host);
void cl_wait_event(void **event);

/* The most bytes that all blocks have had at once; `again`: from now on. */
uint64_t cl_most_bytes(bool again);

/* Operations of several threads follow one another: they stage, and launch kernels, between these two. They nest. */
void cl_enter(void);
void cl_leave(void);

/* A copy in the device's memory of what an operation needs of the process's: valid until room begins anew. cl_stage_room() makes
 * room for `bytes` in all, each copy rounded up to CL_STAGE_ALIGN, and returns how often it has begun anew. */
enum { CL_STAGE_ALIGN = 128 };
size_t cl_stage_room(size_t bytes);
cl_address cl_stage(const void *from, size_t bytes);

/* ---- kernels ---- */

struct cl_kernel;

/* Compiles a kernel, "file.cl" with `options`, or finds the one compiled before. The kernel is the device's. */
int cl_kernel_open(struct cl_kernel **kernel, const char *file, const char *name, const char *options,
                   struct err *err) MUST_USE;

/* Starts a kernel over groups[3] of local[3] work-items. */
void cl_launch(struct cl_kernel *kernel, const void *args, size_t args_bytes, const size_t groups[3],
               const size_t local[3]);

/* ---- failures ---- */

/* Keeps the failure that a function which cannot return it has no memory. */
void cl_fail_memory(void);

/* Returns -1 and the first failure of a command, if there was one. */
int cl_failed(struct err *err) MUST_USE;
