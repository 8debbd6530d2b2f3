/* Starts and ends communication between ranks. The driver library (lib/bmc-mpi.so) is loaded only
 * when ranks are used. */
#ifndef BMC_RANKS_OPEN_H
#define BMC_RANKS_OPEN_H

#include "ranks/ranks.h"

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

#endif
