/* The plan of a model's layers: what each layer is, resolved once from the keys of a configuration, whichever way these
 * say it. Everything that walks layers reads the plan. */
#pragma once

#include "backend/traits.h"
#include "base/base.h"

/* What a layer does with the tokens before: attention over all of them, over a sliding window, or over those of
 * the query's chunk, where positions are cut into chunks of the window's length; nothing, in layers that are only
 * an MLP, or experts; a short convolution, Gated DeltaNet or Mamba-2, whose state does not grow with the
 * sequence; or Mamba-2 beside attention, both on the same input (state_ops.c). */
enum layer_kind {
    LAYER_FULL,
    LAYER_SLIDING,
    LAYER_CHUNKED,
    LAYER_MLP,
    LAYER_EXPERTS,
    LAYER_CONV,
    LAYER_DELTA,
    LAYER_MAMBA,
    LAYER_MAMBA_FULL
};

/* True if layers of the kind have KV entries; recurrent state. */
static inline bool layer_kind_attends(enum layer_kind kind)
{
    return kind <= LAYER_CHUNKED || kind == LAYER_MAMBA_FULL;
}
static inline bool layer_kind_has_state(enum layer_kind kind) { return kind >= LAYER_CONV; }
/* True for layers that are only an MLP. */
static inline bool layer_kind_is_mlp(enum layer_kind kind)
{
    return kind == LAYER_MLP || kind == LAYER_EXPERTS;
}

/* Rotation of Q and K in a layer: the number of its struct rope_plan, or none. */
enum layer_rope { LAYER_ROPE, LAYER_ROPE_LOCAL, LAYER_NOPE };

/* Numbers, of which there are few. */
enum { MAX_FACTORS = 128 };
struct factors {
    size_t n;
    double x[MAX_FACTORS];
};

/* ---- tables that layers share; each module reads its own ---- */

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

/* The rotation of Q and K in some layers (position.h). */
struct rope_plan {
    size_t dim; /* rotary dimensions of a head */
    double theta;
    double share; /* share of the rotary pairs that are rotated, the first; 0: all */
    int scaling;  /* enum rope_scaling */
    double factor;
    size_t original;   /* context length of training before the scaling */
    double low, high;  /* Llama 3 */
    double fast, slow; /* YaRN: beta_fast and beta_slow */
    bool whole;        /* YaRN: correction range rounded to whole dimensions */
    double gain;       /* factor of cos and sin; 0: the default of the scaling */
    /* YaRN: weights of ln(factor) in the gain, and in what it is divided by; 0: neither. In latent attention the
     * latter also sets a factor of attention scores (attn_scale()). */
    double mscale, mscale_all;
    struct factors short_factor; /* LongRoPE: per dimension, for sequences up to `original` */
    struct factors long_factor;  /* the same, beyond it */
};

/* Q at position p is multiplied by 1 + scale ln(1 + floor((p + offset) / length)) (attn_temperature(), position.h). */
struct temperature_plan {
    double scale; /* 0: it is not */
    size_t length, offset;
};

/* Latent attention (MLA; latent_ops.c). The KV cache has one entry per token and layer, of kv_rank plus the
 * rotary dimensions; V is the first kv_rank elements. */
struct latent_plan {
    /* width of the latent that K and V of all heads are computed from; 0: no latent attention */
    size_t kv_rank;
    size_t q_rank;   /* width of the latent of queries; 0: they are projected at once */
    size_t nope_dim; /* elements of a query head without positions; the rotary dimensions follow */
    size_t v_dim;    /* elements of a value head */
    double norm_eps; /* epsilon of the norms of latents; 0: the model's */
    /* Sparse attention: heads of the indexer, their elements, and the positions that it chooses for each query; heads 0:
     * queries attend to all positions. */
    size_t index_heads, index_dim, index_topk;
};

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

/* MLPs of layers. */
struct mlp_plan {
    int activation, kind; /* enum activation, enum mlp */
    bool bias, down_bias; /* all products have biases; only the last one has */
    double limit, alpha;  /* of ACT_CLAMPED_SWIGLU */
    /* factors of the gate before the activation, and of the output; 0: 1 */
    double gate_scale, out_scale;
};

/* Experts and their router (expert_ops.c). */
struct moe_plan {
    size_t experts;    /* 0: the model has none */
    size_t used;       /* experts per token */
    size_t ffn;        /* width of one */
    size_t shared_ffn; /* width of the MLP that all tokens use beside them; 0: none */
    /* the shared MLP's output is multiplied by the sigmoid of a product of its own */
    bool shared_gated;
    /* layers with experts have an MLP, too, and outputs of both are normalised before they are added; the
     * router and the experts have norms of the residual stream of their own */
    bool beside;
    bool bias, sum_bias;        /* experts' products have biases; their sum has one */
    int router, group_score;    /* enum router, enum router_group */
    size_t groups, groups_used; /* groups of neighbouring experts; 0: none */
    bool norm_weights;          /* weights of the chosen experts are divided by their sum */
    double scale;               /* factor of these weights */
    double jitter;              /* of ROUTER_SPARSEMIXER */
    bool bias_router;           /* logits of experts have a bias */
    bool select_bias;           /* scores have a bias, for the choice of experts only */
    bool weigh_input;           /* experts' inputs are multiplied by these weights, not their outputs */
};

enum state_gate { STATE_GATE_SILU, STATE_GATE_SIGMOID };

/* Layers with recurrent state (state_ops.c): short convolutions, Gated DeltaNet, Mamba-2. */
struct recurrent_plan {
    size_t conv_kernel;      /* inputs of a convolution's output; 0: the model has no such layers */
    size_t heads, key_heads; /* of the recurrence; 0: there is only the convolution */
    size_t key_dim, value_dim;
    bool tiled;  /* heads h, h + key_heads, .. share queries and keys; else consecutive heads do */
    bool by_row; /* decays are those of rows of the state, or elements of keys; else of heads */
    /* inner width of the projections of decays and of the output's gate; 0: they have one matrix */
    size_t rank;
    int gate;             /* enum state_gate: the activation of the output's gate */
    bool bias_conv, bias; /* the convolution, and the projections, have biases */
    bool norm;            /* the output of the recurrence is normalised */
    bool norm_first;      /* Mamba-2: before it is multiplied by the gate, else after */
    double in_scale;      /* factors of the layer's input and of its output; 0: 1 */
    double out_scale;
    struct factors scales; /* Mamba-2: of z, v, k, q and a as they are projected; or none */
};

/* Where a draft head joins a token's embedding with the target's hidden state; embed_ops.c. */
enum fusion { FUSION_PROJECT, FUSION_ATTENTION };

/* Draft heads (EAGLE, MTP), whose input is a token and hidden states of the target model (draft_head.h). */
struct draft_plan {
    size_t features;       /* hidden states of the target that are concatenated; 0: not a draft head */
    size_t feature_hidden; /* and their width */
    /* how many of the target's layers precede each of these states, 0 for the embedding; or none: those
     * of EAGLE-3 */
    struct factors feature_layers;
    size_t input_vocab; /* tokens of the target, if the head's logits are for fewer; 0: vocab */
    int fusion;         /* enum fusion */
    bool feature_norm;  /* norm of the hidden states before the projection */
    /* with fusion attention, the residual stream begins behind the layer's first norm */
    bool norm_residual;
    bool norm_output;  /* its own hidden states are read behind its final norm */
    bool mask_feature; /* a parallel draft head (P-EAGLE), with a hidden state for mask tokens */
    bool bias_fusion;
    bool map; /* has a table of the target's ids of its logits */
};

/* ---- layers ---- */

struct layer_plan {
    enum layer_kind kind;
    bool attends;   /* has queries, and the KV entries of kv_source; beside recurrent state or alone */
    bool has_state; /* has recurrent state */

    /* Attention. Positions that a query attends to at most, its own included, and the length of chunks; 0: all,
     * none. */
    size_t window, chunk;
    size_t ahead; /* positions after its own that a query attends to, of the same pass */
    enum layer_rope rope;
    bool attn_norm;    /* a norm precedes attention, or the state, where norm_place has one */
    bool round_inputs; /* of products, to 8 bits per token */
    bool sub_norm;     /* norms precede the output projections of attention and of the MLP */
    bool qk_norm;      /* Q and K are normalised, in the way of the configuration's qk_norm */
    bool temperature;  /* Q is multiplied by the factor of attn_temperature() */
    bool v_is_k;       /* values are keys as they are projected, before norm and rotation */
    /* Query heads, KV heads, and elements of a head of Q and K as attention reads them. In latent attention the last two
     * are sizes of latents, of which there is one. */
    size_t heads, kv_heads, head_dim;

    /* has an indexer; layers without one attend to the positions that the one before chose */
    bool has_index;
    size_t kv_source; /* the layer whose KV entries this one attends to, which may be an earlier one */
    bool owns_kv;     /* projects K and V, and appends them to the cache */

    /* MLP. Layers may have both, one beside the other, or, in models of one_sublayer, none. */
    bool has_mlp, has_experts;
    size_t ffn; /* width of the MLP */
    /* act(gate) is at most this, and up limited to +-this; 0: not. Of the MLP, also of that beside experts, and of experts;
     * with ACT_CLAMPED_SWIGLU mlp_plan's limit. */
    double mlp_limit, expert_limit;
    bool sparse; /* of the gate remains what is above a cutoff, in standard deviations from the mean: */
    double cutoff;
};
