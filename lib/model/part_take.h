/* A rank takes its part of a model: what it has of the weights, and of the mapped file. */
#ifndef BMC_PART_TAKE_H
#define BMC_PART_TAKE_H

#include "model/part.h"

/* Cuts the weights of a model that was just opened down to what this rank has of each; `ranks` is borrowed. */
int part_take(struct model *model, struct ranks *ranks, struct err *err) MUST_USE;

/* The same by layers: count[r] of them for rank r; NULL: as their bytes have it. */
int part_take_layers(struct model *model, struct ranks *ranks, const size_t *count,
                     struct err *err) MUST_USE;

/* The layers of each of `size` ranks, as their bytes have it. */
void part_share_layers(const struct model *model, size_t size, size_t *count);

/* Keeps what it has of the matrices' pages in memory. */
int part_lock(struct model *model, struct err *err) MUST_USE;

#endif
