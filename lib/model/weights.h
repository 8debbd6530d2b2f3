/* The weights of a decoder, as pointers into the mapped model file. Operations have the addresses that a backend gives
 * them (adopted.h); of weights that none uses, the pointers may be read. */
#pragma once

#include "format/bmc/bmcfile.h"
#include "model/config.h"
#include "quant/pack.h"

struct tensor_types;

/* Gain and bias are NULL where the family has none. */
struct norm_weights {
    const float *gain, *bias; /* [hidden]; QK norms: of one head or of all heads */
};

struct linear {
    struct mat weight; /* first: [out][in] */
    const float *bias; /* [out] or NULL */
    size_t skip;       /* leading outputs that belong to another rank (shard.h) */
};

struct layer {
    struct norm_weights attn_norm, attn_post_norm; /* pre-norm or norm of the sum; output's norm */
    /* [H d][hidden], [KV d][hidden], [KV d][hidden]: H query, KV key-value heads of dimension d */
    struct linear q, k, v;
    /* latent attention: [q_lora_rank][hidden], and q is [H (nope_dim + rope_dim)][q_lora_rank or
     * hidden], k [kv_lora_rank + rope_dim][hidden]; of each head [kv_lora_rank][nope_dim] in k_b and
     * [v_dim][kv_lora_rank] in v_b */
    struct linear q_a, k_b, v_b;
    struct norm_weights q_a_norm, kv_a_norm;
    /* the indexer: [index_heads index_dim][q_lora_rank], [index_dim][hidden], [index_heads][hidden] */
    struct linear index_q, index_k, index_weights;
    struct norm_weights index_k_norm;
    struct norm_weights q_norm, k_norm;
    const float *sinks;      /* [H] scores of attention sinks */
    struct linear out;       /* [hidden][H d], or [hidden][H v_dim] */
    struct linear attn_gate; /* [H d][hidden], or [H][hidden], if attention's output is gated */
    /* Layers with recurrent state (state_ops.c): projections, the convolution's weights
     * [conv_kernel][channels] and bias or NULL, and per head the logarithm of the decay rate, the bias of
     * the step and the factor of the skip connection; the gain of the norm of the output. With a state_rank, z and a are
     * projected from those of state_z_in and state_a_in, [state_rank][hidden]; decays by row have as many steps. */
    struct linear state_q, state_k, state_v, state_z, state_a, state_b, state_out, state_z_in,
        state_a_in;
    const float *conv, *conv_bias, *decay, *step, *skip, *state_norm;
    struct norm_weights mlp_norm, mlp_post_norm;
    struct norm_weights attn_sub_norm, mlp_sub_norm; /* [H d] and [ffn]: of what Wout and Wdown read */
    /* Inputs of the layer's own (embed_ops.c): [layer_input][hidden], [hidden][layer_input], norm of the output;
     * and the factor of the layer's output, [1] */
    struct linear input_gate, input_out;
    struct norm_weights input_norm;
    const float *scale;
    /* AltUp (stream_ops.c), S streams: [S][hidden], [S S][S], [S][S], and factors [hidden]; the low-rank residual:
     * [laurel_rank][hidden], [hidden][laurel_rank] and a norm */
    struct linear stream_router, stream_predict, stream_correct;
    struct norm_weights stream_norm;
    const float *stream_scale;
    struct linear laurel_in, laurel_out;
    struct norm_weights laurel_norm;
    struct linear gate, up; /* [ffn][hidden]; gate only in gated MLPs */
    struct linear down;     /* [hidden][ffn] */
    /* Experts in place of gate, up and down, or beside them; weights and biases of the first one, of a stack */
    struct linear router;                   /* [experts][hidden] */
    const float *select_bias;               /* [experts] */
    const float *moe_bias;                  /* [hidden], of the experts' sum */
    struct linear experts_gate, experts_up; /* [expert_ffn][hidden] */
    struct linear experts_down;             /* [hidden][expert_ffn] */
    struct linear shared_gate, shared_up;   /* [shared_ffn][hidden] */
    struct linear shared_down;              /* [hidden][shared_ffn] */
    const float *shared_router;             /* [hidden] */
    /* Experts beside the MLP: norms of its output, of the experts' input and output, and of the router's
     * input; and factors of the experts' weights [experts] */
    struct norm_weights mlp_own_norm, moe_norm, moe_post_norm, router_norm;
    const float *router_gain;
};

struct weights {
    struct mat embed;                      /* [vocab][embed] */
    struct mat position;                   /* [context + offset][hidden], learned positions only */
    struct mat token_type;                 /* [token_types][hidden] */
    struct linear project_in;              /* [hidden][embed], only if embed != hidden */
    struct linear project_out;             /* [embed][hidden] */
    struct linear stream_in, stream_out;   /* [hidden][hidden] of the second stream, of a stack */
    struct mat embed_layers;               /* [vocab][layers * layer_input] */
    struct linear layer_inputs;            /* [layers * layer_input][hidden] */
    struct norm_weights layer_inputs_norm; /* [layer_input] */
    /* Draft heads only: [hidden][embed + features], or [hidden][features] if they join in attention */
    struct linear fusion;
    struct norm_weights feature_norm;
    const float *mask_feature; /* [features * feature_hidden]: of mask tokens; NULL: not parallel */
    const float *draft_offset; /* [vocab] target's id minus the index of the logit; NULL: 0 */
    struct norm_weights embed_norm, final_norm;
    /* Dense layers after pooling: [pooled_dense][hidden], [pooled_out][pooled_dense or hidden] */
    struct linear pooled_dense, pooled_out;
    struct norm_weights pooled_norm; /* [pooled_dense] */
    struct linear head;              /* [vocab][embed]; the same data as `embed` if tied */
    struct layer *layer;
};

/* Sets the pointers to every tensor that the configuration requires; checks type and shape. Nothing
 * is left to release after an error. */
int weights_bind(struct weights *weights, const struct config *config, const struct bmc_file *file,
                 const char *path, struct err *err) MUST_USE;
/* Sets the dimensions and types of all matrices, from which operations and their buffers follow, as those of a synthetic
 * model of these types; no data is there to be read. */
int weights_shape(struct weights *weights, const struct config *config,
                  const struct tensor_types *types, struct err *err) MUST_USE;
void weights_release(struct weights *weights);

/* Bytes of a matrix, or of one of a stack, without padding. */
static inline size_t mat_plain_bytes(const struct mat *mat)
{
    return mat->out * pack_row_bytes(mat->dtype, mat->in);
}
