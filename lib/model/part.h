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

/* Rows [first, first + n) of a step. */
struct rows {
    size_t first, n;
};

enum {
    PART_LOGITS_FLOATS = 1 << 16, /* of rows whose logits are joined in one go, at most */
    PART_LEAST_ROWS = 64, /* of a piece of many: a product of fewer rows takes longer for each */
    PART_MOST_PIECES = 4
};

/* A layer goes over the rows of a step in pieces: what ranks gather of one comes while others are computed. */
size_t part_pieces(size_t rows);
struct rows part_rows(size_t rows, size_t pieces, size_t piece);

/* Of one forward pass. */
struct part {
    const struct config *config; /* of the whole model */
    struct ranks *ranks;         /* NULL: one process has all outputs, its pieces are whole */
    /* [max_rows][room_width]: what is gathered of some rows lies where they begin, pieces of rank 0 first; NULL: none is needed */
    float *room;
    size_t room_width;
    size_t *bytes; /* [ranks] of a piece */
    struct joint {
        enum dim dim;
        struct rows rows;
        float *all, *gathered;
    } joint[PART_MOST_PIECES]; /* those under way, the oldest first */
    size_t n_joints;
    double pushed_ms; /* when they were pushed last */
    double wait_ms;   /* for the pieces of others, their way included */
};

/* For steps of up to `max_rows` rows. */
int part_open(struct part *part, const struct model *model, size_t max_rows, struct err *err) MUST_USE;
void part_close(struct part *part);

/* This rank's piece. */
struct piece part_own(const struct part *part, enum dim dim);

/* Begins to join rows: all[rows][width of dim] will be everybody's pieces, in all ranks; of the vocabulary in rank 0 alone. `mine`
 * is this rank's, with `stride` elements from row to row, and may lie in its place in `all`; both begin with the step's first row. */
int part_start(struct part *part, enum dim dim, float *all, const float *mine, size_t stride,
               struct rows rows, struct err *err) MUST_USE;

/* Now they are: ends what was begun of these rows, in the order in which it was. */
int part_finish(struct part *part, struct rows rows, struct err *err) MUST_USE;

#endif
