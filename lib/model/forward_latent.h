/* Latent attention (MLA of DeepSeek-V2) around the attention kernels.
 *
 *   q_a = norm(h Wqa)                         q_a     [rows][q_lora_rank]    only with a q_lora_rank
 *   q = q_a Wq, or h Wq                       q       [rows][H][nope_dim + rope_dim]
 *   c, k_rope = h Wkva                        c       [rows][kv_lora_rank]   k_rope [rows][rope_dim]
 *   c = norm(c)
 *
 * K and V of head i would be k_nope = c Wkb_i^T and v = c Wvb_i. They are never computed; their matrices
 * are absorbed into queries and outputs instead:
 *
 *   q_i . k_i = q_nope_i . k_nope + rope(q_rope_i) . rope(k_rope)
 *             = [q_nope_i Wkb_i, rope(q_rope_i)] . [c, rope(k_rope)]
 *   out_i     = sum of p v = (sum of p c) Wvb_i
 *
 * So attention sees one KV head with entries [c, rope(k_rope)], whose first kv_lora_rank elements are V
 * too. Prompts and single tokens are computed alike, and give the same bits. */
#ifndef BMC_FORWARD_LATENT_H
#define BMC_FORWARD_LATENT_H

#include "model/forward.h"

/* Computes f->q and f->k, as attention reads them, for a range of rows of `h`, the normalised input of
 * the layer. */
void latent_project(struct forward *f, size_t layer, struct row_range rows, const float *h);

/* f->attn_out_local = the attention outputs of the heads, from the weighted sums of latents in
 * f->context. */
void latent_outputs(struct forward *f, size_t layer, struct row_range rows);

#endif
