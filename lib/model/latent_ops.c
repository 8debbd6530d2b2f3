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
 * too. Prompts and single tokens are computed alike, and give the same bits.
 *
 * In sparse attention (DSA of DeepSeek-V3.2) an indexer chooses the positions s that token t attends to, those with the
 * largest scores, for which it has keys of its own in the cache:
 *
 *   qi = q_a Wqi        [rows][Hi][di]        ki = LayerNorm(h Wki)  [rows][di]        w = h Ww  [rows][Hi]
 *   score(t, s) = sum over heads j of w_j(t) max(rope(qi_j(t)) . rope(ki(s)), 0)
 *
 * Factors that are the same for all s are left out, as they do not change the choice. */
#include "model/op_list.h"

static void norm_latent(struct builder *b, struct op_arg x, size_t width,
                        const struct norm_weights *weights)
{
    const double eps = b->c->latent->norm_eps != 0 ? b->c->latent->norm_eps : b->c->norm_eps;
    struct op *op = op_norm(b, x, x, width, weights);
    op->norm.kind = NORM_RMS;
    op->norm.eps = (float)eps;
}

static struct op_arg chosen_positions(struct builder *b)
{
    return buffer_of(b, BUFFER_POSITIONS, b->c->latent->index_topk);
}

/* Appends the indexer's key to the cache, and chooses positions. */
static void choose_positions(struct builder *b, struct op_arg q, struct op_arg k, struct op_arg weights)
{
    static const float eps = 1e-6f;
    const struct latent_plan *l = b->c->latent;
    const size_t layer = config_indexer_index(b->c, b->layer);
    if (!b->plan->has_index)
        return;
    struct op_norm *norm = &op_norm(b, k, k, l->index_dim, &b->w->index_k_norm)->norm;
    norm->kind = NORM_LAYER;
    norm->eps = eps;
    if (b->plan->rope != LAYER_NOPE)
        append_op(b, OP_ROPE, q, q, l->index_heads * l->index_dim)->rope =
            (struct op_rope){(size_t)b->plan->rope,
                             b->c->rope->dim / 2,
                             2,
                             {{q, l->index_heads, l->index_dim}, {k, 1, l->index_dim}}};
    b->phase = PHASE_ATTENTION;
    append_op(b, OP_APPEND, k, k, l->index_dim)->append = (struct op_append){.v = k, .layer = layer};
    append_op(b, OP_CHOOSE, q, chosen_positions(b), l->index_topk)->choose =
        (struct op_choose){layer, l->index_heads, l->index_dim, l->index_topk, weights};
    b->phase = PHASE_PROJECTION;
}

void latent_choice(struct builder *b, struct op_attend *attend)
{
    if (!b->c->latent->index_heads)
        return;
    attend->chosen = chosen_positions(b);
    attend->most = b->c->latent->index_topk;
}

void latent_projection(struct builder *b, struct op_arg h, struct op_arg q, struct op_arg k)
{
    const struct config *c = &b->own;
    const size_t d = config_query_dim(c), rope = c->rope->dim, table = (size_t)b->plan->rope;
    const struct op_arg q_heads = buffer_of(b, BUFFER_Q_HEADS, c->heads * d),
                        q_a = buffer_of(b, BUFFER_Q_A, c->latent->q_rank),
                        index_q = buffer_of(b, BUFFER_INDEX_Q, config_dim(b->c, DIM_INDEX_Q)),
                        index_k = buffer_of(b, BUFFER_INDEX_K, c->latent->index_dim),
                        weights = buffer_of(b, BUFFER_INDEX_WEIGHTS, c->latent->index_heads);
    const struct op_product q_b = {.w = weight_of(b, &b->w->q),
                                   .y = q_heads,
                                   .adapter = adapter_of(b, c->latent->q_rank ? LORA_Q_B : LORA_Q)};
    const struct op_product first[] = {
        c->latent->q_rank ? (struct op_product){.w = weight_of(b, &b->w->q_a),
                                                .y = q_a,
                                                .adapter = adapter_of(b, LORA_Q_A)}
                          : q_b,
        {.w = weight_of(b, &b->w->k), .y = k, .adapter = adapter_of(b, LORA_KV_A)},
        {.w = weight_of(b, &b->w->index_k), .y = index_k},
        {.w = weight_of(b, &b->w->index_weights), .y = weights, .f32 = true},
    };
    const struct op_product second[] = {q_b, {.w = weight_of(b, &b->w->index_q), .y = index_q}};
    op_linear(b, h, first, ARRAY_LEN(first));
    if (c->latent->q_rank) {
        norm_latent(b, q_a, c->latent->q_rank, &b->w->q_a_norm);
        op_linear(b, q_a, second, ARRAY_LEN(second));
    }
    choose_positions(b, index_q, index_k, weights);
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
