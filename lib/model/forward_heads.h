/* Q, K and V between their projections and attention: QK norm and RoPE. */
#ifndef BMC_FORWARD_HEADS_H
#define BMC_FORWARD_HEADS_H

#include "model/forward.h"

/* Fills the RoPE cosine and sine tables, and the factors of Q, for the positions of the batch; called
 * once per forward pass. Each sequence has its own frequencies. */
void forward_positions(struct forward *f, const struct step *step);

/* Removes the leading linear->skip columns of rows of y, [rows][linear->weight.out]: they belong to
 * another rank's heads. Rows before the range must have been done already. */
void forward_drop_overlap(const struct linear *linear, float *y, struct row_range rows);

/* Applies a layer's QK norm and RoPE to a range of rows of f->q and f->k, in place, after dropping
 * outputs of other ranks' heads from f->q, f->k and f->v. Rows before the range must be finished
 * already. */
int forward_finish_qkv(struct forward *f, size_t layer, struct row_range rows,
                       struct err *err) MUST_USE;

#endif
