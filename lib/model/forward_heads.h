/* Q, K and V between their projections and attention: QK norm and RoPE. */
#ifndef BMC_FORWARD_HEADS_H
#define BMC_FORWARD_HEADS_H

#include "model/forward.h"

/* Fills the cosine and sine tables for the positions of a step; called once per step. Each
 * sequence has its own frequencies. */
void forward_rope_angles(struct forward *f, const struct step *step);

/* Applies QK norm and rotary positions to a range of rows of f->q, f->k and f->v, in place,
 * after dropping outputs of other ranks' heads. Rows before the range must be finished already. */
int forward_finish_qkv(struct forward *f, const struct layer *w, struct row_range rows,
                       struct err *err) MUST_USE;

#endif
