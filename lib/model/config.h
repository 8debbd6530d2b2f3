/* The configuration of a decoder: sizes and traits. Shape files and model.bmc contain it as
 * "key value" lines, and a family file translates config.json to such lines. The keys are
 * listed in one table, in config.c. */
#ifndef BMC_CONFIG_H
#define BMC_CONFIG_H

#include "base/conf.h"
#include "base/err.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "model/layer_plan.h"

enum norm { NORM_LAYER, NORM_RMS };
/* Norms of a sublayer (attention or MLP): pre-norm, post-norm of the sum, post-norm of the
 * output only, or pre-norm and post-norm of the output. */
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_ON_OUTPUT, NORM_AROUND };
/* Order in a layer: attention, then MLP; or both in parallel on the same x, each with a norm of its
 * own, or with one shared norm. */
enum block_order { BLOCK_SEQUENTIAL, BLOCK_PARALLEL, BLOCK_PARALLEL_SHARED };
enum position { POSITION_LEARNED, POSITION_ROPE, POSITION_ALIBI };
enum activation {
    ACT_RELU,
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU2,
    ACT_QUICK_GELU,
    ACT_CLAMPED_SWIGLU
};
enum mlp { MLP_PLAIN, MLP_GATED };
/* RoPE scaling; see position.c. */
enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,
    ROPE_LONGROPE,
    ROPE_NTK
};
/* Norms of Q and K: none; over each head, with the same gains for all heads; over all heads; over
 * each head, with gains of its own. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE, QK_NORM_EACH };
/* Scores of experts: softmax over all logits, over those of the chosen experts, or a sigmoid of each, by which
 * experts are chosen, or by their logits; experts.c. */
enum router { ROUTER_SOFTMAX, ROUTER_TOPK_SOFTMAX, ROUTER_SIGMOID, ROUTER_TOPK_SIGMOID };
/* Score of a group of experts: that of its best expert, or the sum of its best two. */
enum router_group { ROUTER_GROUP_MAX, ROUTER_GROUP_TOP2 };
/* Where a draft head joins a token's embedding with the target's hidden state; forward_fusion.c. */
enum fusion { FUSION_PROJECT, FUSION_ATTENTION };
/* Which hidden states of a text embeddings are made of: POOLING_NONE, the model does not say;
 * POOLING_UNSUPPORTED, it says something else. */
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_LAST, POOLING_CLS, POOLING_UNSUPPORTED };

enum { MAX_EOS = 8, MAX_FACTORS = 128, MAX_FEATURES = 16, MAX_LAYERS = 1024, MAX_EXPERTS = 1024 };

struct factors {
    size_t n;
    double x[MAX_FACTORS];
};

/* A value per layer: layer l has value[l % n]. n = 0: the default, which depends on other keys. */
struct layer_list {
    size_t n;
    uint8_t value[MAX_LAYERS];
};

struct config {
    char family[32];
    size_t layers;
    size_t hidden;   /* width of the residual stream */
    size_t embed;    /* width of the embedding; projected to `hidden` if they differ */
    size_t heads;    /* H */
    size_t kv_heads; /* H / G */
    size_t head_dim; /* d */
    /* of layers with full attention; 0: the same as in the others */
    size_t full_kv_heads, full_head_dim;
    /* The last `kv_shared` layers have no keys and values: they attend to those of the last layer before them that is of
     * the same kind. Their ffn; 0: the same. */
    size_t kv_shared, kv_shared_ffn;
    /* Latent attention (MLA; model/forward_latent.h): width of the latent that K and V of all heads are
     * computed from, 0: none. The KV cache has one entry per token and layer, of head_dim = kv_lora_rank +
     * rope_dim elements; V is the first kv_lora_rank of them. */
    size_t kv_lora_rank;
    size_t q_lora_rank;   /* width of the latent of queries; 0: they are projected at once */
    size_t nope_dim;      /* elements of a query head without positions; rope_dim others follow */
    size_t v_dim;         /* elements of a value head */
    double lora_norm_eps; /* epsilon of the norms of latents; 0: norm_eps */
    size_t ffn;
    size_t vocab;
    size_t mask_token; /* of a parallel draft model (PARD): stands for tokens to draft; 0: none */
    size_t context;    /* maximum sequence length in tokens */
    /* Draft heads (EAGLE, MTP), whose input is a token and a hidden state of the target model:
     * hidden states of the target that are concatenated, 0: not a draft head; and their width */
    size_t features, feature_hidden;
    /* how many of the target's layers precede each of these states, 0 for the embedding; or none: those
     * of EAGLE-3 */
    struct factors feature_layers;
    size_t input_vocab;     /* tokens of the target, if the head's logits are for fewer; 0: vocab */
    size_t position_offset; /* learned positions: table row = position + offset */
    int norm, norm_place, qk_norm, block, position, activation, mlp, rope_scaling;
    int fusion; /* of a draft head */
    /* of a draft head: norm of the hidden states before the projection; with fusion attention, the
     * residual stream begins behind the layer's first norm; its own hidden states are read behind its
     * final norm */
    bool feature_norm, norm_residual, norm_output;
    bool mask_feature; /* a parallel draft head (P-EAGLE), with a hidden state for mask tokens */
    bool bias_fusion;
    bool target_embed, target_head; /* a draft head uses the target's embedding, or LM head */
    bool draft_map;                 /* a draft head has a table of the target's ids of its logits */
    bool embed_norm;                /* norm after the embedding */
    bool no_attn_norm;              /* attention has no pre-norm, whatever norm_place is */
    bool norm_affine;               /* norms have gain (and bias) */
    bool no_norm_bias;              /* LayerNorm has no bias */
    bool qk_norm_after_rope;        /* else before */
    bool qk_norm_affine;            /* QK norms have gains (and biases) */
    bool qk_norm_rotated;           /* only layers that are rotated have QK norms */
    bool v_norm;                    /* values are normalised per head, without gains */
    bool
        v_is_k; /* layers with full attention: values are keys as they are projected, before norm and rotation */
    bool final_norm;
    bool bias_qkv, bias_out, bias_mlp, bias_head;
    bool tied_head; /* the LM head is the embedding matrix */
    bool no_head;   /* there is no LM head: the model is for embeddings */
    int pooling;
    bool embed_normalize; /* embeddings have unit length */
    double norm_eps;
    /* Factors of token embeddings, of what a sublayer adds to x, and of logits; 0 means 1 */
    double embed_scale, residual_scale, logit_scale;
    /* Factors, 0 means 1: of the input of attention and of layers with recurrent state, of keys, of the outputs
     * of these sublayers and of the MLP, and of its gate before the activation */
    double attn_in_scale, state_in_scale, key_scale, attn_out_scale, state_out_scale, mlp_scale,
        gate_scale;
    struct factors state_scales; /* Mamba-2: of z, v, k, q and a as they are projected; or none */
    double rope_theta, rope_factor, rope_low, rope_high;
    /* YaRN: beta_fast and beta_slow */
    double rope_fast, rope_slow;
    bool rope_whole;  /* YaRN: correction range rounded to whole dimensions */
    double rope_gain; /* factor of cos and sin; 0: the default of rope_scaling */
    /* YaRN: weights of ln(rope_factor) in the gain, and in what the gain is divided by; 0: neither. In latent
     * attention the latter weight also sets a factor of attention scores (attn_scale(), position.h). */
    double rope_mscale, rope_mscale_all;
    struct factors rope_short,
        /* LongRoPE factors per dimension, for sequences up to and beyond rope_original */
        rope_long;
    size_t rope_original; /* original context length */
    size_t rope_dim;      /* rotary dimensions of a head; 0: all */
    double rope_share;    /* share of the rotary pairs that LAYER_ROPE rotates, the first; 0: all */
    size_t window;        /* sliding window; 0: none */
    /* every n-th layer has full attention, all others the sliding window; 0: all have the window */
    size_t window_every;
    bool last_full; /* the last layer has full attention, whatever layer_types or window_every say */
    struct layer_list layer_types, /* enum layer_kind; default: by window and window_every */
        layer_rope;                /* enum layer_rope; default: by the three keys below */
    size_t rope_every;             /* every n-th layer is not rotated; 0: none of them */
    /* enum layer_rope of layers with a window, and of the others of a model that has one */
    int rope_sliding, rope_full;
    double rope_local_theta; /* base of LAYER_ROPE_LOCAL, without scaling; 0: rope_theta */
    /* Width of inputs of every layer of its own, per token (forward_input.h); 0: none. */
    size_t layer_input;
    bool layer_scale; /* a layer's output is multiplied by a learned factor */
    /* Experts, in the layers that have them in place of an MLP; 0: none. expert_ffn is the width of one,
     * shared_ffn that of the MLP that all tokens use beside them (0: none). */
    size_t experts, experts_used, expert_ffn, shared_ffn;
    size_t expert_first; /* layers before this one have a plain MLP */
    size_t
        expert_every;   /* of the others every n-th layer has experts: those with (layer + 1) % n = 0 */
    size_t expert_last; /* layers after this one have a plain MLP; 0: none do */
    struct factors mlp_layers; /* numbers of further layers that have a plain MLP */
    /* numbers of the layers that have experts, in place of what the keys above say; none: as they say */
    struct factors expert_layers;
    int router, router_group;
    size_t router_groups, router_groups_used; /* groups of neighbouring experts; 0: none */
    bool router_norm;        /* weights of the chosen experts are divided by their sum */
    double router_scale;     /* factor of these weights */
    bool bias_router;        /* logits of experts have a bias */
    bool router_select_bias; /* scores have a bias, for the choice of experts only */
    bool router_input;       /* experts' inputs are multiplied by these weights, not their outputs */
    bool bias_experts;
    /* layers with experts have an MLP, too, and outputs of both are normalised before they are added; the
     * router and the experts have norms of the residual stream of their own */
    bool expert_beside;
    bool
        shared_gated; /* the shared MLP's output is multiplied by the sigmoid of a product of its own */
    /* Layers with recurrent state: inputs of a convolution's output, 0: the model has no such layers; and
     * heads, heads of keys and sizes of heads of Gated DeltaNet and Mamba-2 */
    size_t conv_kernel, state_heads, state_key_heads, state_key_dim, state_value_dim;
    bool
        state_tiled; /* heads h, h + state_key_heads, .. share queries and keys; else consecutive heads do */
    bool bias_conv, bias_state; /* the convolution, and the projections of these layers, have a bias */
    bool state_norm;            /* the output of the recurrence is normalised */
    bool state_norm_first;      /* of Mamba-2: before it is multiplied by the gate, else after */
    bool attn_gate;             /* attention's output is multiplied by the sigmoid of a projection */
    double attn_scale;          /* factor of attention scores; 0: 1 / sqrt(head_dim) */
    double attn_softcap, logit_softcap; /* 0: none */
    bool attn_sinks; /* softmax has a learned score per head beside those of the positions */
    double swiglu_limit, swiglu_alpha; /* of ACT_CLAMPED_SWIGLU */
    double clip_qkv;                   /* limit of |q|, |k| and |v|; 0: none */
    /* Q at position p is multiplied by
     * 1 + attn_temperature ln(1 + floor((p + temperature_offset) / temperature_length)) */
    double attn_temperature;
    size_t temperature_length, temperature_offset;
    bool temperature_unrotated; /* only in layers without rotation */
    uint32_t eos[MAX_EOS];
    size_t n_eos;
    /* [layers], made by config_plan() from the keys above and owned by this configuration; copies of it borrow them */
    const struct layer_plan *plan;
};

/* Elements of Q, as attention reads it, and of K or of V, per token and layer. */
static inline size_t config_q_width(const struct config *c) { return c->heads * c->head_dim; }
static inline size_t config_kv_width(const struct config *c) { return c->kv_heads * c->head_dim; }

/* Elements of a query head as it is projected. */
static inline size_t config_query_dim(const struct config *c)
{
    return c->kv_lora_rank ? c->nope_dim + c->rope_dim : c->head_dim;
}

/* Elements of attention's output, all heads: of latents, in latent attention. */
static inline size_t config_context_width(const struct config *c)
{
    return c->heads * (c->kv_lora_rank ? c->kv_lora_rank : c->head_dim);
}

/* Elements of the output projection's input. */
static inline size_t config_attn_width(const struct config *c)
{
    return c->heads * (c->kv_lora_rank ? c->v_dim : c->head_dim);
}

/* The shape of the model's KV cache: layers with attention only. */
struct kv_shape config_kv_shape(const struct config *config, size_t max_rows, enum dtype type);

/* Bytes of one token's KV entries in a cache. */
static inline double config_token_bytes(const struct config *c, enum dtype type)
{
    const struct kv_shape shape = config_kv_shape(c, 1, type), other = kv_shape_other(&shape);
    return (double)(kv_shape_row_bytes(&shape) + kv_shape_row_bytes(&other));
}

/* The same if K and V of every head were stored, where latent attention stores what they are made of. */
static inline double config_full_token_bytes(const struct config *c, enum dtype type)
{
    return c->kv_lora_rank
               ? (double)(c->layers * c->heads) * (double)(dtype_row_bytes(type, config_query_dim(c)) +
                                                           dtype_row_bytes(type, c->v_dim))
               : config_token_bytes(c, type);
}

/* True for a draft head, which only computes drafts for a target model. */
static inline bool config_is_draft_head(const struct config *c) { return c->features > 0; }

/* Elements per token of the hidden states that a draft head gets from the target. */
static inline size_t config_feature_width(const struct config *c)
{
    return c->features * c->feature_hidden;
}

/* True if a sublayer's output has a post-norm of its own. */
static inline bool config_norms_output(const struct config *c)
{
    return c->norm_place >= NORM_ON_OUTPUT;
}

/* True if a sublayer's output is changed before it is added to x. */
static inline bool config_changes_output(const struct config *c)
{
    return config_norms_output(c) || c->residual_scale != 0;
}

/* Reads every configuration key from `conf`, checks its value, and plans the layers; other keys are ignored.
 * config_close() frees the result. After an error there is nothing to free. */
int config_read(struct config *config, const struct conf *conf, struct err *err) MUST_USE;

/* Makes the plan of the layers from the other members: of a configuration that config_read() did not make, of a copy
 * that is to have a plan of its own, or after a change of `layers`. A plan that it already has is replaced, not freed;
 * after an error there is none. */
int config_plan(struct config *config, struct err *err) MUST_USE;

/* Frees the plan. */
void config_close(struct config *config);

/* Rotary dimensions of a head. */
size_t config_rope_dim(const struct config *config);

/* True if a layer of [from, end) attends to the keys and values of `layer`, which are its own. */
bool config_kv_read_from(const struct config *config, size_t layer, size_t from, size_t end);

/* True if a rank with the layers [first, first + n) stores the keys and values of a layer: its own, and of earlier
 * layers those that it attends to, which it receives from the rank before. */
bool config_stores_kv(const struct config *config, size_t first, size_t n, size_t layer);

/* Number in the KV cache of the layer that `layer` attends to, for a cache of the layers [first, first + n): those
 * of the main shape, of which there is at least one, then the others. */
size_t config_kv_index(const struct config *config, size_t first, size_t n, size_t layer);

/* Sizes of layers with full attention. */
static inline size_t config_full_head_dim(const struct config *c)
{
    return c->full_head_dim ? c->full_head_dim : c->head_dim;
}
static inline size_t config_full_kv_heads(const struct config *c)
{
    return c->full_kv_heads ? c->full_kv_heads : c->kv_heads;
}

/* The configuration with the sizes of one layer, head_dim, kv_heads and ffn: `config`, or, if they differ,
 * *own. */
const struct config *config_of_layer(const struct config *config, size_t layer, struct config *own);

/* True if layers differ in sizes of heads, share keys and values, have inputs of their own, or have experts beside
 * an MLP. */
bool config_layers_differ(const struct config *config);

/* Rotary dimensions of the layers with a kind of rotation. */
size_t config_table_dim(const struct config *config, enum layer_rope rope);

/* Tables of rotations that the layers need: 1, or 2 if one of them has LAYER_ROPE_LOCAL. */
size_t config_rope_tables(const struct config *config);

/* The kind of the layers with recurrent state, the same for all of them; LAYER_FULL: there are none. */
enum layer_kind config_state_kind(const struct config *config);

/* Layers whose KV heads have the main sizes, the others, or both. */
enum kv_sizes { KV_MAIN, KV_OTHER, KV_ALL_SIZES };

/* Numbers of layers whose KV entries a cache for the layers [first, first + n) has (config_stores_kv()), and of
 * these layers that have recurrent state. */
size_t config_kv_layers(const struct config *config, size_t first, size_t n, enum kv_sizes sizes);
size_t config_state_layers(const struct config *config, size_t first, size_t n);

/* The shape of the model's recurrent state. */
struct state_shape config_state_shape(const struct config *config);

/* Widths of layers with recurrent state, per token: values, which are the output; queries, or keys; and
 * the convolution's channels. */
static inline size_t config_state_values(const struct config *c)
{
    return c->state_heads ? c->state_heads * c->state_value_dim : c->hidden;
}
static inline size_t config_state_keys(const struct config *c)
{
    return c->state_key_heads * c->state_key_dim;
}
/* True if heads that share keys are neighbours: ranks can then have ranges of both. Else, and with one
 * head of keys, each rank needs all keys. */
static inline bool config_splits_keys(const struct config *c)
{
    return c->state_key_heads > 1 && !c->state_tiled;
}
static inline size_t config_conv_width(const struct config *c)
{
    return config_state_values(c) + 2 * config_state_keys(c);
}

/* Writes the keys that differ from their defaults, one per line in table order. The text is hashed
 * into model_id: equal configurations give equal text, and adding a key with a default does not
 * change the text of existing configurations. */
int config_write(const struct config *config, struct buf *text, struct err *err) MUST_USE;

bool config_has_key(const char *name);

/* The enum pooling of a name; POOLING_UNSUPPORTED: it is none. */
int config_pooling(const char *name);

#endif
