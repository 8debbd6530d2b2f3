/* How pieces of a file are read and written meanwhile: what kv_spill.c asks of an engine. */
#ifndef BMC_SPILL_ENGINE_H
#define BMC_SPILL_ENGINE_H

#include <sys/types.h>

#include "kv/kv_spill.h"

enum { SPILL_PIECES = 256 }; /* under way at most */

/* A piece of a read or write. */
struct spill_piece {
    struct spill_ticket *ticket;
    struct spill_piece *next; /* in the list that it is in */
    char *at;
    size_t offset, bytes;
    bool write;
    ssize_t result; /* bytes, or -errno */
};

struct spill_engine {
    /* False where this system does not have it: another engine is asked then. */
    bool (*open)(void **state, int fd);

    /* Takes a piece, of SPILL_PIECES at most; begin() begins with all that were taken. */
    void (*take)(void *state, struct spill_piece *piece);
    void (*begin)(void *state);

    /* Waits for a piece that has ended, with its result set. Some are under way. */
    struct spill_piece *(*ended)(void *state);

    void (*close)(void *state); /* none is under way */
};

extern const struct spill_engine spill_engine_uring, spill_engine_thread;

/* spill_thread.c: the piece at once, from the `done`-th byte on; the bytes of all of it that are done, or -errno. */
ssize_t spill_piece_run(int fd, const struct spill_piece *piece, size_t done);

#endif
