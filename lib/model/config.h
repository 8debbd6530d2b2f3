/* The configuration of a decoder: sizes and traits. Shape files and model.bmc contain it as
 * "key value" lines, and a family file translates config.json to such lines. The keys are
 * listed in one table, in config.c. */
#pragma once

#include "base/conf.h"
#include "base/err.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "model/layer_plan.h"

/* Norms of a sublayer (attention or MLP): pre-norm, post-norm of the sum, post-norm of the
 * output only, or pre-norm and post-norm of the output. */
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_ON_OUTPUT, NORM_AROUND };
/* Order in a layer: attention, then MLP; or both in parallel on the same x, each with a norm of its
 * own, or with one shared norm. */
enum block_order { BLOCK_SEQUENTIAL, BLOCK_PARALLEL, BLOCK_PARALLEL_SHARED };
enum position { POSITION_LEARNED, POSITION_ROPE, POSITION_ALIBI };
/* Norms of Q and K: none; over each head, with the same gains for all heads; over all heads; over
 * each head, with gains of its own. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE, QK_NORM_EACH };
/* Attention's output is multiplied by the sigmoid of a projection of its input, which has all its elements, or one for each
 * head. */
enum attn_gate { ATTN_GATE_NONE, ATTN_GATE_ELEMENT, ATTN_GATE_HEAD };
/* Which hidden states of a text embeddings are made of: POOLING_NONE, the model does not say;
 * POOLING_UNSUPPORTED, it says something else. */
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_LAST, POOLING_CLS, POOLING_UNSUPPORTED };

/* What follows the first dense layer after pooling. */
enum pooled_activation { POOLED_PLAIN, POOLED_TANH, POOLED_GELU, POOLED_RELU };

/* Embeddings, and scores of classifiers. */
struct pooled_config {
    int pooling;    /* enum pooling */
    bool normalize; /* embeddings have unit length */
    /* dense layers after pooling (layer_ops.c): their outputs, 0: there is none; enum pooled_activation */
    size_t dense, out;
    int activation;
    bool norm, bias, out_bias;
    bool scores;     /* the outputs are those of a classifier */
    size_t pair_gap; /* separators between both texts of a pair beyond the one that ends each */
};

/* The embedding of a token for each layer (embed_ops.c). */
struct layer_input_config {
    size_t width; /* of a layer; 0: there is none */
    size_t vocab; /* rows of its table, of which ids beyond have the first; 0: those of the model */
};

/* What Gemma 3n has beside its layers (stream_ops.c). */
struct stream_config {
    size_t n;           /* AltUp: hidden states per token; 0: one, without AltUp */
    size_t laurel_rank; /* width of the low-rank residual of attention; 0: none */
};

enum { MAX_EOS = 8, MAX_FEATURES = 16, MAX_LAYERS = 1024, MAX_STREAMS = 16 };

struct config_keys;

/* What the model is, and pointers to the tables of modules and the plan of its layers, which config_plan() makes: none
 * of them is NULL then. In those of parts that a model may lack (temperature, latent, moe, recurrent, draft) the first
 * member is 0 if it does. */
struct config {
    char family[32];
    size_t layers;
    size_t hidden;   /* width of the residual stream */
    size_t embed;    /* width of the embedding; projected to `hidden` if they differ */
    size_t heads;    /* H; layer_plan has that of a layer, and the next three */
    size_t kv_heads; /* H / G */
    size_t head_dim; /* d */
    size_t ffn;
    size_t vocab;
    size_t mask_token;      /* of a parallel draft model (PARD): stands for tokens to draft; 0: none */
    size_t context;         /* maximum sequence length in tokens */
    size_t position_offset; /* learned positions: table row = position + offset */
    int norm, norm_place, qk_norm, block, position;
    bool target_embed, target_head; /* a draft head uses the target's embedding, or LM head */
    bool embed_norm;                /* norm after the embedding */
    /* rows of a table; that of a token's segment is added to its embedding; 0: none */
    size_t token_types;
    bool norm_affine;        /* norms have gain (and bias) */
    bool no_norm_bias;       /* LayerNorm has no bias */
    bool qk_norm_after_rope; /* else before */
    bool qk_norm_affine;     /* QK norms have gains (and biases) */
    bool v_norm;             /* values are normalised per head, without gains */
    bool final_norm;
    bool bias_qkv, bias_out, bias_head;
    bool tied_head; /* the LM head is the embedding matrix */
    bool no_head;   /* there is no LM head: the model is for embeddings */
    struct pooled_config pooled;
    double norm_eps;
    /* Factors of token embeddings, of what a sublayer adds to x, and of logits; 0 means 1 */
    double embed_scale, residual_scale, logit_scale;
    double attn_in_scale, key_scale, attn_out_scale; /* the same of attention's input, keys, output */
    struct layer_input_config layer_input;
    struct stream_config stream;
    bool layer_scale;                   /* a layer's output is multiplied by a learned factor */
    int attn_gate;                      /* enum attn_gate */
    double attn_scale;                  /* factor of attention scores; 0: 1 / sqrt(head_dim) */
    double attn_softcap, logit_softcap; /* 0: none */
    bool attn_sinks; /* softmax has a learned score per head beside those of the positions */
    double clip_qkv; /* limit of |q|, |k| and |v|; 0: none */
    uint32_t eos[MAX_EOS];
    size_t n_eos;

    /* [1] each, but for `rope` and `plan` */
    const struct config_keys *keys; /* keys of its text, for lib/model/config/ only (config_keys.h) */
    const struct rope_plan *rope;   /* [config_rope_tables()] by enum layer_rope */
    const struct temperature_plan *temperature;
    const struct latent_plan *latent;
    const struct mlp_plan *mlp;
    const struct moe_plan *moe;
    const struct recurrent_plan *recurrent;
    const struct draft_plan *draft;
    const struct layer_plan *plan; /* [layers] */
};

/* Width of the residual stream, or of all streams. */
static inline size_t config_stream_width(const struct config *c)
{
    return size_max(c->stream.n, 1) * c->hidden;
}

/* Elements of Q, as attention reads it, and of K or of V, per token and layer. */
static inline size_t config_q_width(const struct config *c) { return c->heads * c->head_dim; }
static inline size_t config_kv_width(const struct config *c) { return c->kv_heads * c->head_dim; }

/* Elements of a query head as it is projected. */
static inline size_t config_query_dim(const struct config *c)
{
    return c->latent->kv_rank ? c->latent->nope_dim + c->rope->dim : c->head_dim;
}

/* Elements of attention's output, all heads: of latents, in latent attention. */
static inline size_t config_context_width(const struct config *c)
{
    return c->heads * (c->latent->kv_rank ? c->latent->kv_rank : c->head_dim);
}

/* Elements of the output projection's input. */
static inline size_t config_attn_width(const struct config *c)
{
    return c->heads * (c->latent->kv_rank ? c->latent->v_dim : c->head_dim);
}

/* The sizes and types of a layer's KV entries. */
struct kv_sizes config_kv_sizes(const struct config *config, size_t layer,
                                const struct cache_types *types);

/* Indexers' keys are in layers of the cache of their own, behind all others, as keys whose values are a part of them: adds
 * them to a shape, false: there are too many; and the number of such a layer in the cache. */
bool config_add_indexers(struct kv_shape *shape, const struct config *config,
                         const struct cache_types *types) MUST_USE;
size_t config_indexer_index(const struct config *config, size_t layer);

/* The shape of the model's KV cache: layers with attention only. */
struct kv_shape config_kv_shape(const struct config *config, size_t max_rows,
                                const struct cache_types *types);

/* True for an encoder, whose tokens attend to later ones, too, so that a text is computed in one pass. */
static inline bool config_is_encoder(const struct config *c) { return c->plan[0].ahead > 0; }

/* True if dense layers follow pooling. */
static inline bool config_has_pooled_head(const struct config *c)
{
    return c->pooled.dense || c->pooled.out;
}

/* Elements of an embedding, or scores of a classifier. */
static inline size_t config_pooled_width(const struct config *c)
{
    return c->pooled.out ? c->pooled.out : c->pooled.dense ? c->pooled.dense : c->hidden;
}

/* True for a draft head, which only computes drafts for a target model. */
static inline bool config_is_draft_head(const struct config *c) { return c->draft->features > 0; }

/* Elements per token of the hidden states that a draft head gets from the target. */
static inline size_t config_feature_width(const struct config *c)
{
    return c->draft->features * c->draft->feature_hidden;
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

/* Makes the tables and the plan of the layers from a copy of `keys` (NULL: the default of every key) and the members
 * before it: of a configuration that config_read() did not make, of a copy that is to have a plan of its own, or after a
 * change of `layers`. They are this configuration's own, and copies of it borrow them. What it has already is replaced,
 * not freed; after an error it has none. */
int config_plan(struct config *config, struct err *err) MUST_USE;

/* Frees what config_plan() made. */
void config_close(struct config *config);

/* Rotary dimensions of a head of the main size. */
size_t config_rope_dim(const struct config *config);

/* True if a layer of [from, end) attends to the keys and values of `layer`, which are its own. */
bool config_kv_read_from(const struct config *config, size_t layer, size_t from, size_t end);

/* True if a rank with the layers [first, first + n) stores the keys and values of a layer: its own, and of earlier
 * layers those that it attends to, which it receives from the rank before. */
bool config_stores_kv(const struct config *config, size_t first, size_t n, size_t layer);

/* Number in the KV cache of the layer that `layer` attends to, for a cache of the layers [first, first + n). */
size_t config_kv_index(const struct config *config, size_t first, size_t n, size_t layer);

/* The largest width of an MLP, and of the input of an output projection, of all layers. */
size_t config_max_ffn(const struct config *config);
size_t config_max_attn_width(const struct config *config);

/* The configuration with the sizes of one layer, heads, kv_heads, head_dim and ffn: `config`, or, if they differ,
 * *own. */
const struct config *config_of_layer(const struct config *config, size_t layer, struct config *own);

/* True if layers differ in numbers of heads or in their sizes. */
bool config_heads_differ(const struct config *config);

/* Tables of rotations that the layers need: 1, or 2 if one of them has LAYER_ROPE_LOCAL. */
size_t config_rope_tables(const struct config *config);

/* The kind of the layers with recurrent state, the same for all of them; LAYER_FULL: there are none. */
enum layer_kind config_state_kind(const struct config *config);

/* Numbers of layers whose KV entries a cache for the layers [first, first + n) has (config_stores_kv()), and of
 * these layers that have recurrent state. */
size_t config_kv_layers(const struct config *config, size_t first, size_t n);
size_t config_state_layers(const struct config *config, size_t first, size_t n);

/* The shape of the model's recurrent state. */
struct state_shape config_state_shape(const struct config *config);

/* Widths of layers with recurrent state, per token: values, which are the output; queries, or keys; and
 * the convolution's channels. */
static inline size_t config_state_values(const struct config *c)
{
    return c->recurrent->heads ? c->recurrent->heads * c->recurrent->value_dim : c->hidden;
}
static inline size_t config_state_keys(const struct config *c)
{
    return c->recurrent->key_heads * c->recurrent->key_dim;
}
/* True if heads that share keys are neighbours: ranks can then have ranges of both. Else, and with one
 * head of keys, each rank needs all keys. */
static inline bool config_splits_keys(const struct config *c)
{
    return c->recurrent->key_heads > 1 && !c->recurrent->tiled;
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

/* What values of a key are. */
enum config_value { CONFIG_SIZE, CONFIG_REAL, CONFIG_WORD, CONFIG_BOOL, CONFIG_LIST };

/* Appends the value of a key, as config_write() has it after the name; *usual: it is the default. Fails for unknown
 * keys, too. */
int config_get(const struct config *config, const char *name, struct buf *value,
               enum config_value *kind, bool *usual, struct err *err) MUST_USE;

/* The enum pooling of a name; POOLING_UNSUPPORTED: it is none. */
int config_pooling(const char *name);

/* The enum pooled_activation of a name; POOLED_PLAIN: it is none. */
int config_pooled_activation(const char *name);
