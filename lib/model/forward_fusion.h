/* The input of a draft head, and hidden states kept for one. */
#ifndef BMC_FORWARD_FUSION_H
#define BMC_FORWARD_FUSION_H

#include "model/forward.h"

/* x of a draft head's step, from its tokens and f->feature. */
void fusion_embed(struct forward *f, const struct step *step);

/* The input of Wq, Wk and Wv for rows of a layer, given the normed x in `normed`. */
const float *fusion_attn_input(struct forward *f, struct row_range rows, const float *normed);

/* Keeps the residual stream that enters a layer, or the final hidden states, if they are asked for. */
void tap_layer(struct forward *f, size_t rows, size_t layer);
void tap_final(struct forward *f, size_t rows);

#endif
