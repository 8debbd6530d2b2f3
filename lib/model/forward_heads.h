/* What becomes of queries, keys and values between their products and attention. */
#ifndef BMC_FORWARD_HEADS_H
#define BMC_FORWARD_HEADS_H

#include "model/forward.h"

/* Once a step: cosines and sines of all rows; each sequence has frequencies of its own. */
void heads_angles(struct forward *f, const struct step *step);

/* Some rows of f->q, f->k and f->v, as they come out of their products, become those of this rank's heads, with norms and rotary
 * positions. Rows before them have been finished. */
int forward_heads_finish(struct forward *f, const struct layer *w, struct rows rows,
                         struct err *err) MUST_USE;

#endif
