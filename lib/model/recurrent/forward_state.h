/* Layers with recurrent state: short convolutions, Gated DeltaNet and Mamba-2.
 *
 * All are a causal convolution over the channels of projections of the input h; then, except for short
 * convolutions, a recurrence per head, whose state S [key_dim][value_dim] each token updates; then a gate
 * and an output projection:
 *
 *   conv    x += (z * conv(b * v)) Wout                                     b, z, v = h Wb, h Wz, h Wv
 *   delta   q, k, v = silu(conv(h Wq, h Wk, h Wv)); q, k normalised         z, a, b = h Wz, h Wa, h Wb
 *           S = decay S + k (sigmoid(b) (v - decay S^T k))^T                decay = exp(-rate softplus(a + step))
 *           x += (norm(S^T q) * silu(z)) Wout
 *   mamba   v, k, q = silu(conv(h Wv, h Wk, h Wq))                          z, a = h Wz, h Wa
 *           S = decay S + k (d v)^T                                         d = softplus(a + step), decay = exp(-rate d)
 *           x += norm((S^T q + skip v) * silu(z)) Wout
 *                                                                           (or norm(S^T q + skip v) * silu(z))
 *
 * Tokens are taken one after the other, so a sequence gets the same bits however it is cut into forward
 * passes; heads, and columns of S, are independent of each other and run in parallel. In a token tree,
 * each token continues from the state of its parent. */
#ifndef BMC_FORWARD_STATE_H
#define BMC_FORWARD_STATE_H

#include "model/forward.h"

int forward_state_open(struct forward *f, struct err *err) MUST_USE;
void forward_state_close(struct forward *f);

/* Computes the projections of a layer's input `h`, [rows][hidden], for a range of rows. */
void forward_state_project(struct forward *f, struct row_range rows, size_t layer, const float *h);

/* Convolution and recurrence of all rows of a step, from and to the state in the KV cache; sets
 * forward_state_out(). */
int forward_state_run(struct forward *f, const struct step *step, size_t layer,
                      struct err *err) MUST_USE;

/* Starts the all-gather of the output of forward_state_run(), of this rank's heads. */
int forward_state_gather(struct forward *f, struct row_range rows, struct err *err) MUST_USE;

/* The input of the output projection, complete after that: [rows][values] of all heads. */
const float *forward_state_out(const struct forward *f);

/* f->attn_out_local *= sigmoid(gate), with the gate that forward_gate_project() computed. */
void forward_gate_project(struct forward *f, struct row_range rows, size_t layer, const float *h);
void forward_gate_apply(struct forward *f, struct row_range rows);

#endif
