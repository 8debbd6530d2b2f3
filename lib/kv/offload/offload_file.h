/* An unlinked temporary file for KV entries that do not fit in memory, read and written
 * asynchronously. It disappears with the process. Only one thread at a time may use it.
 *
 * Addresses, offsets and sizes are multiples of OFFLOAD_BLOCK, so that reads and writes can bypass
 * the page cache (O_DIRECT). */
#pragma once

#include "backend/memory.h"

enum { OFFLOAD_BLOCK = ASYNC_BLOCK };

struct offload_file;

/* The file is read to, and written from, `memory`. A device's memory has `bytes` bytes of the process's instead of a file, and
 * `dir` must be empty. */
int offload_file_open(struct offload_file **file, const struct backend_memory *memory, const char *dir,
                      size_t bytes, struct err *err) MUST_USE;

/* Of such memory: gives back that of bytes [offset, offset + bytes), which are no longer needed. */
void offload_file_drop(struct offload_file *file, size_t offset, size_t bytes);

/* Waits for requests in flight. NULL is accepted. */
void offload_file_close(struct offload_file *file);

/* Starts to read bytes [offset, offset + bytes) of the file to `at`, or to write them from there:
 * the memory must not be touched until offload_file_wait(). */
void offload_file_read(struct offload_file *file, struct async_ticket *ticket, struct device_addr at,
                       size_t offset, size_t bytes);
void offload_file_write(struct offload_file *file, struct async_ticket *ticket, struct device_addr at,
                        size_t offset, size_t bytes);

/* Waits for all requests of a ticket and resets it, also on error. */
int offload_file_wait(struct offload_file *file, struct async_ticket *ticket, struct err *err) MUST_USE;

/* async_file_rate() of the file. */
double offload_file_rate(const struct offload_file *file);
