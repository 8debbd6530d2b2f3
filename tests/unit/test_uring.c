/* A ring that does not do what is asked: what passes is waited for, and what stays is an error of what was under way. The calls of
 * the library are this file's, which has its own reasons to fail. */
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "kv/kv_spill.h"

/* The next `times` calls say `error`; -1: all of them. */
static struct {
    int error, times, calls;
} submit, wait;

static unsigned given; /* pieces, to the ring that is open */

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

/* All that a ring was given has come back: their memory is given back behind it. */
void io_uring_queue_exit(struct io_uring *ring)
{
    void (*real)(struct io_uring *) =
        (void (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_queue_exit");
    check(*ring->cq.khead == given, "%u pieces given, %u back", given, *ring->cq.khead);
    given = 0;
    real(ring);
}

/* What io_uring_wait_cqe() calls where nothing is there yet. */
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
static int there_and_back(struct spill *spill, struct err *err)
{
    struct spill_ticket writing = {0}, reading = {0};
    for (size_t i = 0; i < BYTES; i++)
        memory[i] = (char)(i / SPILL_BLOCK + i);
    spill_write(spill, &writing, memory, 0, BYTES);
    if (spill_wait(spill, &writing, err) < 0)
        return -1;
    memset(memory + BYTES, 0, BYTES);
    spill_read(spill, &reading, memory + BYTES, 0, BYTES);
    if (spill_wait(spill, &reading, err) < 0)
        return -1;
    check(memcmp(memory, memory + BYTES, BYTES) == 0, "other bytes came back");
    return 0;
}

static void test_passing(int error, int submits, int waits)
{
    struct spill *spill;
    struct err err;
    check(spill_open(&spill, ".", &err) == 0, "%s", err.text);
    submit.error = wait.error = error;
    submit.times = submits;
    wait.times = waits;
    check(there_and_back(spill, &err) == 0, "error %d, %d and %d times", error, submits, waits);
    submit.error = wait.error = 0;
    spill_close(spill);
}

/* Once it has failed it is as the first error said, and what comes is refused, too. */
static void test_lasting(int submit_error, int wait_error)
{
    struct spill *spill;
    struct err err = {{0}};
    check(spill_open(&spill, ".", &err) == 0, "%s", err.text);
    submit.error = submit_error;
    wait.error = wait_error;
    submit.times = wait.times = -1;
    for (int i = 0; i < 3; i++) {
        wait.calls = 0;
        const int rc = there_and_back(spill, &err), error = submit_error ? submit_error : wait_error;
        if (wait_error && !wait.calls)
            break; /* all was there at once */
        /* Writes may be there at once; then it is reads that wait. */
        check(rc < 0 &&
                  strstr(err.text, wait_error ? "the cache's file there"
                                              : "cannot write to the cache's file there") &&
                  strstr(err.text, strerror(error)),
              "error %d, and %d of a wait: \"%s\"", submit_error, wait_error, rc < 0 ? err.text : "");
    }
    submit.error = wait.error = 0;
    spill_close(spill);
}

int main(void)
{
    struct io_uring ring;
    memory = aligned_alloc(SPILL_BLOCK, 2 * BYTES);
    if (!memory)
        return 1;
    /* One that is asked for ever does not end otherwise. */
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
