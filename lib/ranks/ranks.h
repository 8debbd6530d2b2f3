/* Ranks: the processes that run one job together, as in MPI, on one or several machines, and the
 * communication between them. lib/ranks implements the operations; programs that run as a single
 * process do not need it. */
#pragma once

#include "base/err.h"

struct ranks;

/* Except for send, receive and probe, the operations are collective: all ranks call them in the
 * same order, each from one thread. They return 0, or -1 with `err` filled. If a rank exits early,
 * all ranks are ended. */
struct ranks_ops {
    /* All-gather: fills all[] with the concatenation of all ranks' data, bytes[r] from rank r. The
     * caller has stored its own data at its offset in all[] before. */
    int (*gather)(struct ranks *ranks, void *all, const size_t *bytes, struct err *err);
    /* Non-blocking all-gather; gather_wait() waits for the oldest one in flight. Until then the
     * caller must not touch or free `all`; after an error it must never free it. */
    int (*gather_start)(struct ranks *ranks, void *all, const size_t *bytes, struct err *err);
    int (*gather_wait)(struct ranks *ranks, struct err *err);
    /* Lets all-gathers in flight make progress; does not block. */
    void (*progress)(struct ranks *ranks);
    int (*broadcast)(struct ranks *ranks, void *data, size_t bytes, int from, struct err *err);
    /* Sends a message without waiting for the receiver; the caller may reuse `data` at once. */
    int (*send)(struct ranks *ranks, const void *data, size_t bytes, int to, int tag, struct err *err);
    /* Receives a message of at most `bytes` bytes. *from and *tag select it (-1: any) and are set
     * to the sender and tag of the message, *received to its size. */
    int (*receive)(struct ranks *ranks, void *data, size_t bytes, int *from, int *tag, size_t *received,
                   struct err *err);
    /* Checks for a message as receive() selects it, without receiving: 1 if one has arrived, with
     * *from, *tag and *bytes set to describe it, else 0. */
    int (*probe)(struct ranks *ranks, int *from, int *tag, size_t *bytes, struct err *err);
};

struct ranks {
    const struct ranks_ops *ops;
    int rank, size;
    void *state;                              /* private data of the driver */
    size_t sent_bytes, received_bytes, calls; /* totals, counted by the driver */
};

/* Receives a message of exactly `bytes` bytes from rank `from`; any other size is an error. */
int ranks_take(struct ranks *ranks, int from, int tag, void *data, size_t bytes,
               struct err *err) MUST_USE;

/* Starts and ends communication between ranks. The driver library (lib/bmc-mpi.so) is loaded only
 * when ranks are used. */

/* The symbol, a struct ranks_driver, that a driver library exports. Its two sizes detect libraries
 * that were built from other headers than the program. */
#define RANKS_DRIVER "ranks_driver"

struct ranks_driver {
    size_t ranks_bytes, ops_bytes; /* sizeof struct ranks, struct ranks_ops */
    int (*open)(struct ranks *ranks, struct err *err);
    /* Collective: waits until all ranks call it. If a rank exits without calling it, the launcher
     * ends all ranks. */
    void (*close)(struct ranks *ranks);
};

/* Loads the driver library at path `library` and connects to the other ranks. */
int ranks_open(struct ranks **ranks, const char *library, struct err *err) MUST_USE;
void ranks_close(struct ranks *ranks);

/* Collective: checks that all ranks pass the same text, made of lines like "version 0.1.0". If not,
 * all fail with the same message, about the lowest rank that differs from rank 0; `name` is how the
 * message refers to the calling rank. */
int ranks_agree(struct ranks *ranks, const char *name, const char *text, struct err *err) MUST_USE;
