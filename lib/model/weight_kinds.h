/* The kinds of weights of a decoder: name in model.bmc, shape, condition, and offset in struct
 * weights. bmc-convert, synthetic models and model_open() all iterate over this table. */
#pragma once

#include "quant/dtype.h"
#include "model/config.h"

/* Dimensions of weights. */
enum dim {
    DIM_NONE, /* no second dimension: a vector */
    DIM_HIDDEN,
    DIM_HIDDEN_WHOLE, /* of outputs that every rank computes */
    DIM_FEATURE,      /* hidden states of a draft head's target, concatenated */
    DIM_EMBED,
    DIM_Q,        /* output of Wq: H d, or H (nope_dim + rope_dim) in latent attention */
    DIM_KV,       /* KV d: kv_heads * head_dim */
    DIM_ATTN_OUT, /* input of Wo: H d, or H v_dim in latent attention */
    DIM_Q_LORA,
    DIM_KV_LORA,
    DIM_K_B, /* H kv_lora_rank */
    DIM_NOPE,
    DIM_HEADS,
    DIM_Q_NORM, /* width of the Q norm: head_dim, or all heads */
    DIM_K_NORM,
    DIM_FFN,
    DIM_VOCAB,
    DIM_TOKENS,  /* rows of the embedding: input_vocab or vocab */
    DIM_ATTN_IN, /* input of Wq, Wk, Wv: hidden, or embed + hidden */
    DIM_FUSION,  /* input of a draft head's projection */
    DIM_EXPERTS,
    DIM_EXPERT_FFN,
    DIM_SHARED_FFN,
    /* of layers with recurrent state */
    DIM_STATE_KEYS,   /* queries or keys of all heads */
    DIM_STATE_VALUES, /* values of all heads; channels of a short convolution */
    DIM_STATE_HEADS,  /* one per head; the short convolution's input gate: one per channel */
    DIM_STATE_DECAYS, /* the same, or one per row of a head's state */
    DIM_STATE_RANK,   /* inner width of low-rank projections */
    DIM_STATE_NORM,   /* gain of the norm of the output */
    DIM_CONV,         /* channels of the convolution */
    DIM_CONV_WEIGHT,  /* [conv_kernel][channels] */
    DIM_POSITIONS,    /* context + position_offset */
    DIM_TOKEN_TYPES,
    DIM_POOLED,    /* outputs of the first dense layer after pooling */
    DIM_POOLED_IN, /* inputs of the second */
    DIM_POOLED_OUT,
    DIM_LAYER_INPUT,  /* inputs of a layer of its own */
    DIM_LAYER_INPUTS, /* the same of all layers */
    DIM_LAYER_VOCAB,  /* rows of their table */
    DIM_STREAMS,      /* AltUp */
    DIM_STREAM_PAIRS,
    DIM_INDEX_Q, /* the indexer's queries, its key, and the weights of its heads */
    DIM_INDEX_K,
    DIM_INDEX_HEADS,
    DIM_LAUREL, /* width of the low-rank residual */
    DIM_ONE
};

size_t config_dim(const struct config *config, enum dim dim);

/* Values of a tensor in a synthetic model. */
enum fill { FILL_RANDOM, FILL_ONE, FILL_ZERO, FILL_IDS /* zeros; int64 in sources */ };

struct weight_kind {
    const char *name; /* begins with "layer.": one tensor per layer */
    enum dim out, in;
    uint8_t needs[3]; /* enum trait, weight_kinds.c: traits that the model and the layer must have */
    enum fill fill;
    size_t offset; /* in struct layer or struct weights: a struct mat or a float pointer */
};

/* In the order of the file: tensors that are used together are adjacent. */
extern const struct weight_kind weight_kinds[];
extern const size_t n_weight_kinds;

/* The kind called `name` ("layer.q.weight"), or NULL. */
const struct weight_kind *weight_kind_find(const char *name);

bool weight_kind_in_layer(const struct weight_kind *kind);

/* True if a layer of the model has a tensor of this kind; `layer` is ignored for kinds outside
 * layers. */
bool weight_kind_has(const struct weight_kind *kind, const struct config *config, size_t layer);

/* True if a tensor of this kind has the weights of all experts of a layer. */
bool weight_kind_of_experts(const struct weight_kind *kind);

/* True if a tensor of this kind has a matrix for each stream of AltUp but the first. */
bool weight_kind_of_streams(const struct weight_kind *kind);

/* Number of matrices or vectors in the stack that a tensor of this kind is, of the experts of a layer or of streams; 0:
 * it is a single one. */
size_t weight_kind_stack(const struct weight_kind *kind, const struct config *config);

/* Sets shape[4] to that of a tensor of this kind, slowest dimension first, unused dimensions being 1;
 * returns the number of dimensions. */
size_t weight_kind_shape(const struct weight_kind *kind, const struct config *config, size_t shape[4]);

/* True for weights that are never quantised, unless the user asks for it by name: routers, weights of indexers' heads,
 * and dense layers after pooling. */
bool weight_kind_stays_wide(const struct weight_kind *kind);

/* Number of layers that may have a tensor of a kind, 1 for kinds outside layers; 0 if the model has
 * none. weight_kind_has() tells whether a layer has it. */
size_t weight_kind_copies(const struct weight_kind *kind, const struct config *config);

/* Multiply-adds of a token's products in all layers of the model, whatever a rank has of them: without those of attention
 * and recurrences, of embeddings and the head; of experts, those that a token uses. SIZE_MAX: too many. */
size_t config_layer_macs(const struct config *config);

/* True for embedding tables, of which a forward pass reads single rows, although a tied LM head
 * uses the same data. */
bool weight_kind_is_table(const struct weight_kind *kind);

/* True for embedding tables that are not also the LM head: no GEMM reads them. */
bool weight_kind_looked_up(const struct weight_kind *kind, const struct config *config);

/* LAYOUT_PACKED for matrices that a GEMM reads and for all quantised ones; LAYOUT_ROWS for
 * vectors and plain lookup tables. */
enum layout weight_kind_layout(const struct weight_kind *kind, const struct config *config,
                               enum dtype type);

/* The struct mat or float pointer of a kind; `layer` is ignored for kinds outside layers. */
struct weights;
void *weight_kind_at(const struct weight_kind *kind, const struct weights *weights, size_t layer);

enum { WEIGHT_NAME_SIZE = 64 };

/* Before names of tensors of a draft head in a model's file, where users name or see both. */
#define DRAFT_PREFIX "draft."
enum { DRAFT_NAME_SIZE = WEIGHT_NAME_SIZE + sizeof DRAFT_PREFIX };

/* "layers.3.q.weight" for the kind "layer.q.weight"; `layer` is ignored for kinds outside
 * layers. */
void weight_kind_tensor_name(const struct weight_kind *kind, size_t layer, char name[WEIGHT_NAME_SIZE]);
