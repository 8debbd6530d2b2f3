/* Ranks: processes of one run, on one machine or on more. What they need of each other is this table; lib/ranks fills it. */
#ifndef BMC_RANKS_H
#define BMC_RANKS_H

#include <stddef.h>

#include "base/err.h"

struct ranks;

/* Every call is one that all ranks of the run make in the same order (but send, receive and waiting), from one thread. 0, or -1 with
 * `err` filled; a rank that is gone ends the run. */
struct ranks_ops {
    /* all[] of every rank: the pieces of ranks 0 .. size-1 one behind the other, bytes[r] of each; this rank's lies in its place
     * already. */
    int (*gather)(struct ranks *ranks, void *all, const size_t *bytes, struct err *err);
    /* The same in two, with work between: started, and ended. Several may be under way; end() waits for the oldest. `all` is not
     * touched between, and stays where it is; where any of this failed, for good. */
    int (*start)(struct ranks *ranks, void *all, const size_t *bytes, struct err *err);
    int (*end)(struct ranks *ranks, struct err *err);
    /* Lets what is under way come on, and waits for nothing. */
    void (*push)(struct ranks *ranks);
    int (*broadcast)(struct ranks *ranks, void *data, size_t bytes, int from, struct err *err);
    /* never waits for the receiver: the data are copied where they cannot go out at once */
    int (*send)(struct ranks *ranks, const void *data, size_t bytes, int to, int tag, struct err *err);
    /* from, tag: -1 is any; says who sent, what tag, and how many of at most `bytes` came */
    int (*receive)(struct ranks *ranks, void *data, size_t bytes, int *from, int *tag, size_t *came,
                   struct err *err);
    /* 1: a message can be received now, and receive() with these `from` and `tag`, which are set, gets it and its `bytes`; 0: there
     * is none yet */
    int (*waiting)(struct ranks *ranks, int *from, int *tag, size_t *bytes, struct err *err);
};

struct ranks {
    const struct ranks_ops *ops;
    int rank, size;
    void *state;                              /* of who filled the table */
    size_t sent_bytes, received_bytes, calls; /* counted by whoever fills the table */
};

/* Receives a message of as many bytes: of fewer or more it is an error. */
int ranks_take(struct ranks *ranks, int from, int tag, void *data, size_t bytes,
               struct err *err) MUST_USE;

#endif
