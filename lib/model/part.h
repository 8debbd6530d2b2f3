/* What one rank of several holds of a model, and how the pieces of a step come together.
 *
 * Split by tensors: of every matrix that products read a rank keeps a range of the outputs, cut at multiples of 16, which are the blocks that it
 * lies in; of queries, keys and values those of a range of KV heads, of the cache these heads. A rank computes its outputs with
 * the sums of one process, and then all get all of them: nothing is added across ranks, so logits are the same bit for bit.
 * Split by layers: a rank has some layers, one behind the other, and their cache; rank 0 the embedding, too, the last rank the
 * head. A step's rows go from rank to rank (chain.h).
 * Of the mapped file a rank keeps what is its own. */
#ifndef BMC_PART_H
#define BMC_PART_H

#include "base/ranks.h"
#include "model/model.h"
#include "model/roles.h"

/* Outputs [first, first + n) of a dimension. */
struct piece {
    size_t first, n;
};

/* What rank `rank` of `size` has of a dimension of products' outputs. */
struct piece part_piece(const struct config *config, enum dim dim, size_t rank, size_t size);

/* The model's configuration with the heads and the number of layers that this rank has. */
struct config part_config(const struct model *model);

/* The same with the most that any rank has; of one process its own. */
struct config part_largest(const struct model *model);

enum { PART_ROOM_FLOATS = 1 << 16 }; /* of rows that are joined in one go, at most */

/* Of one forward pass. */
struct part {
    const struct config *config; /* of the whole model */
    struct ranks *ranks;         /* NULL: one process has all outputs, its pieces are whole */
    float *room;                 /* pieces of some rows, those of rank 0 first; NULL: none is needed */
    size_t room_floats;
    size_t *bytes;  /* [ranks] of a piece */
    double wait_ms; /* for the pieces of others, their way included */
};

/* For steps of up to `max_rows` rows. */
int part_open(struct part *part, const struct model *model, size_t max_rows, struct err *err) MUST_USE;
void part_close(struct part *part);

/* This rank's piece. */
struct piece part_own(const struct part *part, enum dim dim);

/* all[rows][width of dim] of everybody's pieces, in all ranks; of the vocabulary in rank 0 alone. `mine` is this rank's, with `stride` elements from row to row, and may lie in
 * its place in `all`. */
int part_join(struct part *part, enum dim dim, float *all, const float *mine, size_t stride,
              size_t rows, struct err *err) MUST_USE;

#endif
