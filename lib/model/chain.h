/* A model that is split by layers: a step's rows go from each rank to the next, logits from the last to rank 0.
 *
 * A rank does not wait for what comes of the rows that it sends: it may go on with the next step. Rank 0 may ask for logits of a
 * step, and take them when others have been computed meanwhile. */
#ifndef BMC_CHAIN_H
#define BMC_CHAIN_H

#include "model/model.h"

/* Of one forward pass. */
struct chain {
    struct ranks *ranks; /* NULL: the model is not split by layers */
    size_t first_layer;  /* that this rank has */
    size_t questions;    /* for logits, up to now; the same in all ranks */
    double wait_ms;      /* for rows and logits of others */
};

struct chain chain_open(const struct model *model);

/* This rank is the first, or the last; a process alone is both. */
bool chain_first(const struct chain *chain);
bool chain_last(const struct chain *chain);

/* The rows of a step from the rank before, and to the rank behind; nothing where there is none. */
int chain_receive(struct chain *chain, float *x, size_t floats, struct err *err) MUST_USE;
int chain_send(const struct chain *chain, const float *x, size_t floats, struct err *err) MUST_USE;

/* The answer to question `number`: the last rank gives it, rank 0 takes it. */
int chain_give(const struct chain *chain, size_t number, const float *logits, size_t floats,
               struct err *err) MUST_USE;
int chain_take(struct chain *chain, size_t number, float *logits, size_t floats,
               struct err *err) MUST_USE;

#endif
