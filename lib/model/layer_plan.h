/* The plan of a model's layers: what each layer is, resolved once from the keys of a configuration, whichever way these
 * say it. Everything that walks layers reads the plan. */
#ifndef BMC_LAYER_PLAN_H
#define BMC_LAYER_PLAN_H

#include "base/base.h"

/* What a layer does with the tokens before: attention over all of them, over a sliding window, or over those of
 * the query's chunk, where positions are cut into chunks of the window's length; a short convolution, Gated
 * DeltaNet or Mamba-2, whose state does not grow with the sequence; or Mamba-2 beside attention, both on the
 * same input (forward_state.h). */
enum layer_kind {
    LAYER_FULL,
    LAYER_SLIDING,
    LAYER_CHUNKED,
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

/* Rotation of Q and K in a layer: by rope_theta and rope_scaling, by rope_local_theta alone, or none. */
enum layer_rope { LAYER_ROPE, LAYER_ROPE_LOCAL, LAYER_NOPE };

struct layer_plan {
    enum layer_kind kind;
    bool attends;   /* has queries, and the KV entries of kv_source; beside recurrent state or alone */
    bool has_state; /* has recurrent state */

    /* Attention. Positions that a query attends to at most, its own included, and the length of chunks; 0: all,
     * none. */
    size_t window, chunk;
    enum layer_rope rope;
    bool qk_norm;     /* Q and K are normalised, in the way of the configuration's qk_norm */
    bool temperature; /* Q is multiplied by the factor of attn_temperature */
    bool v_is_k;      /* values are keys as they are projected, before norm and rotation */
    /* Query heads and KV heads, elements of a head of Q and K as attention reads them, and of V. In latent attention
     * these are sizes of latents: 1 KV head, of which V is the beginning. */
    size_t heads, kv_heads, head_dim, v_dim;

    /* The layer whose KV entries this one attends to, which may be an earlier one; and its number in a KV cache of all
     * layers (config_kv_index()). */
    size_t kv_source, kv_index;
    bool owns_kv;       /* projects K and V, and appends them to the cache */
    bool kv_other;      /* KV heads of full_kv_heads and full_head_dim */
    size_t state_index; /* layers with recurrent state before this one */

    /* MLP. Layers may have both, one beside the other. */
    bool has_mlp, has_experts;
    size_t ffn; /* width of the MLP */
};

#endif
