/* Reduces a model to the weights, and the pages of the mapped file, of one rank. */
#pragma once

#include "model/parallel/shard.h"

/* Tensor parallel: keeps this rank's range of outputs of every matrix or, with `expert_parallel`, of all but those
 * of experts, of which it keeps a range whole. The model must be freshly opened; `ranks` is borrowed. */
int shard_model_tensors(struct model *model, struct ranks *ranks, bool expert_parallel,
                        struct err *err) MUST_USE;

/* Pipeline parallel: keeps this rank's layers. Rank r gets count[r]; NULL:
 * shard_assign_layers(). */
int shard_model_layers(struct model *model, struct ranks *ranks, const size_t *count,
                       struct err *err) MUST_USE;

/* Sets count[size], zeros on entry, to numbers of layers per rank that balance bytes of weights. */
void shard_assign_layers(const struct model *model, size_t size, size_t *count);

/* Locks this rank's matrices in memory (mlock). */
int shard_lock(struct model *model, struct err *err) MUST_USE;
