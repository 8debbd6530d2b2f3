/* Ranks: opens a run's, and closes them. What they talk through is a library of its own, loaded only when somebody asks for
 * ranks: programs that run alone neither need nor load it. */
#ifndef BMC_RANKS_OPEN_H
#define BMC_RANKS_OPEN_H

#include "base/ranks.h"

/* What such a library has under the name RANKS_DRIVER. Built from other headers than the program, it would not fit: the two
 * sizes are compared. */
#define RANKS_DRIVER "ranks_driver"

struct ranks_driver {
    size_t ranks_bytes, ops_bytes; /* of struct ranks, struct ranks_ops */
    int (*open)(struct ranks *ranks, struct err *err);
    /* To be called by all ranks: waits for them. A run that ends without it is ended for all by who started it. */
    void (*close)(struct ranks *ranks);
};

/* Loads the library at that path, and meets the other ranks. */
int ranks_open(struct ranks **ranks, const char *library, struct err *err) MUST_USE;
void ranks_close(struct ranks *ranks);

/* Every rank has the same text, line by line, or all have the same sentence about the lowest rank that differs. Lines begin with
 * what they tell, as in "version 0.1.0"; `name` is what this rank is called. */
int ranks_agree(struct ranks *ranks, const char *name, const char *text, struct err *err) MUST_USE;

#endif
