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
#include "model/op_list.h"

static void norm_latent(struct builder *b, struct op_arg x, size_t width,
                        const struct norm_weights *weights)
{
    const double eps = b->c->latent->norm_eps != 0 ? b->c->latent->norm_eps : b->c->norm_eps;
    struct op *op = op_norm(b, x, x, width, weights);
    op->norm.kind = NORM_RMS;
    op->norm.eps = (float)eps;
}

void latent_projection(struct builder *b, struct op_arg h, struct op_arg q, struct op_arg k)
{
    const struct config *c = &b->own;
    const size_t d = config_query_dim(c), rope = c->rope->dim, table = (size_t)b->plan->rope;
    const struct op_arg q_heads = buffer_of(b, BUFFER_Q_HEADS, c->heads * d),
                        q_a = buffer_of(b, BUFFER_Q_A, c->latent->q_rank);
    const struct op_product q_b = {.w = weight_of(b, &b->w->q),
                                   .y = q_heads,
                                   .adapter = adapter_of(b, c->latent->q_rank ? LORA_Q_B : LORA_Q)};
    const struct op_product first[] = {
        c->latent->q_rank ? (struct op_product){.w = weight_of(b, &b->w->q_a),
                                                .y = q_a,
                                                .adapter = adapter_of(b, LORA_Q_A)}
                          : q_b,
        {.w = weight_of(b, &b->w->k), .y = k, .adapter = adapter_of(b, LORA_KV_A)},
    };
    op_linear(b, h, first, ARRAY_LEN(first));
    if (c->latent->q_rank) {
        norm_latent(b, q_a, c->latent->q_rank, &b->w->q_a_norm);
        op_linear(b, q_a, &q_b, 1);
    }
    norm_latent(b, k, c->latent->kv_rank, &b->w->kv_a_norm);
    if (b->plan->rope != LAYER_NOPE)
        append_op(b, OP_ROPE, q, q, c->heads * d)->rope =
            (struct op_rope){table,
                             rope / 2,
                             2,
                             {{columns(q_heads, c->latent->nope_dim), c->heads, d},
                              {columns(k, c->latent->kv_rank), 1, rope}}};
    append_op(b, OP_COPY, columns(q_heads, c->latent->nope_dim), columns(q, c->latent->kv_rank), rope)
        ->copy = (struct op_copy){c->heads, d, c->head_dim};
    append_op(b, OP_HEADS, q_heads, q, 0)->heads =
        (struct op_heads){weight_of(b, &b->w->k_b), c->heads, d, c->head_dim};
}

void latent_outputs(struct builder *b, struct op_arg context, struct op_arg attn_out)
{
    append_op(b, OP_HEADS, context, attn_out, 0)->heads = (struct op_heads){
        weight_of(b, &b->w->v_b), b->own.heads, b->own.latent->kv_rank, b->own.latent->v_dim};
}
