/* Failures of io_uring: temporary ones are retried, permanent ones are reported as errors of the
 * requests in flight. This file wraps the calls of liburing to inject them. */
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cpu/cpu_memory.h"
#include "tests/unit/check.h"
#include "kv/offload/offload_file.h"

/* The next `times` calls return `error`; -1: all of them. */
static struct {
    int error, times, calls;
} submit, wait;

static unsigned given; /* requests, to the open ring */

static bool fails(int error, int *times, int *calls)
{
    ++*calls;
    if (!error || !*times)
        return false;
    *times -= *times > 0;
    return true;
}

int io_uring_submit(struct io_uring *ring)
{
    int (*real)(struct io_uring *) = (int (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_submit");
    if (fails(submit.error, &submit.times, &submit.calls))
        return -submit.error;
    const int n = real(ring);
    given += n > 0 ? (unsigned)n : 0;
    return n;
}

/* All requests have completed: their memory is freed next. */
void io_uring_queue_exit(struct io_uring *ring)
{
    void (*real)(struct io_uring *) =
        (void (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_queue_exit");
    check(*ring->cq.khead == given, "%u requests submitted, %u completed", given, *ring->cq.khead);
    given = 0;
    real(ring);
}

/* Called by io_uring_wait_cqe() if nothing has completed. */
int __io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned submitted, unsigned n,
                       sigset_t *mask)
{
    int (*real)(struct io_uring *, struct io_uring_cqe **, unsigned, unsigned, sigset_t *) =
        (int (*)(struct io_uring *, struct io_uring_cqe **, unsigned, unsigned, sigset_t *))dlsym(
            RTLD_NEXT, "__io_uring_get_cqe");
    return fails(wait.error, &wait.times, &wait.calls) ? -wait.error
                                                       : real(ring, cqe, submitted, n, mask);
}

enum { BYTES = 4 << 20 };

static char *memory;

/* Writes, waits, reads and compares; -1 with err. */
static int there_and_back(struct offload_file *offload_file, struct err *err)
{
    struct async_ticket writing = {0}, reading = {0};
    for (size_t i = 0; i < BYTES; i++)
        memory[i] = (char)(i / OFFLOAD_BLOCK + i);
    offload_file_write(offload_file, &writing, cpu_addr(memory), 0, BYTES);
    if (offload_file_wait(offload_file, &writing, err) < 0)
        return -1;
    memset(memory + BYTES, 0, BYTES);
    offload_file_read(offload_file, &reading, cpu_addr(memory + BYTES), 0, BYTES);
    if (offload_file_wait(offload_file, &reading, err) < 0)
        return -1;
    check(memcmp(memory, memory + BYTES, BYTES) == 0, "read other bytes");
    return 0;
}

static void test_passing(int error, int submits, int waits)
{
    struct offload_file *offload_file;
    struct err err;
    check(offload_file_open(&offload_file, &cpu_memory, ".", 0, &err) == 0, "%s", err.text);
    submit.error = wait.error = error;
    submit.times = submits;
    wait.times = waits;
    check(there_and_back(offload_file, &err) == 0, "error %d, %d and %d times", error, submits, waits);
    submit.error = wait.error = 0;
    offload_file_close(offload_file);
}

/* After a permanent failure the first error stays, also for later requests. */
static void test_lasting(int submit_error, int wait_error)
{
    struct offload_file *offload_file;
    struct err err = {0};
    check(offload_file_open(&offload_file, &cpu_memory, ".", 0, &err) == 0, "%s", err.text);
    submit.error = submit_error;
    wait.error = wait_error;
    submit.times = wait.times = -1;
    for (int i = 0; i < 3; i++) {
        wait.calls = 0;
        const int rc = there_and_back(offload_file, &err),
                  error = submit_error ? submit_error : wait_error;
        if (wait_error && !wait.calls)
            break; /* all completed at once */
        /* Writes may complete at once; reads then wait. */
        check(rc < 0 &&
                  strstr(err.text, wait_error ? "the cache's file there"
                                              : "cannot write to the cache's file there") &&
                  strstr(err.text, strerror(error)),
              "error %d, and %d of a wait: \"%s\"", submit_error, wait_error, rc < 0 ? err.text : "");
    }
    submit.error = wait.error = 0;
    offload_file_close(offload_file);
}

int main(void)
{
    struct io_uring ring;
    memory = aligned_alloc(OFFLOAD_BLOCK, 2 * BYTES);
    if (!memory)
        return 1;
    /* Endless polling would not end otherwise. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){10, 10});
    if (io_uring_queue_init(4, &ring, 0) == 0) {
        io_uring_queue_exit(&ring);
        test_passing(0, 0, 0);
        test_passing(EAGAIN, 2, 0);
        test_passing(EBUSY, 1, 2);
        test_passing(EINTR, 0, 3);
        test_lasting(EBADF, 0);
        test_lasting(0, EBADF);
    }
    check(true, "none here");
    free(memory);
    return check_result();
}
