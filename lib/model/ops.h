/* The operations of a forward pass, and the buffers that they use. */
#pragma once

#include "backend/op.h"

/* Buffers of the arena: [max_rows][width], of which each operand names some columns. */
enum buffer {
    BUFFER_X,      /* the residual stream, or all streams */
    BUFFER_H,      /* normalised input of a sublayer */
    BUFFER_BRANCH, /* output of a sublayer before its post-norm */
    BUFFER_MLP_IN, /* MLP input in parallel blocks */
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_Q_A,     /* latent attention: the latent of queries */
    BUFFER_Q_HEADS, /* queries as they are projected */
    BUFFER_LATENTS, /* weighted sums of latents */
    BUFFER_INDEX_Q, /* the indexer: queries, the key, weights of heads, and the positions that it chose */
    BUFFER_INDEX_K,
    BUFFER_INDEX_WEIGHTS,
    BUFFER_POSITIONS,
    BUFFER_GATE,
    BUFFER_ATTN_HEADS, /* output of attention over this rank's heads; over all heads: */
    BUFFER_ATTN_OUT,
    BUFFER_UP,       /* activated MLP input of Wdown */
    BUFFER_BESIDE,   /* output of experts beside the MLP */
    BUFFER_EMBEDDED, /* where its width differs from hidden */
    BUFFER_FUSED,    /* draft heads: the embedding beside the hidden state */
    BUFFER_FEATURE,  /* draft heads: hidden states that the caller sets */
    BUFFER_LAYER_INPUTS,
    BUFFER_LAYER_GATE,
    BUFFER_STREAM_ROUTED, /* AltUp: the router's outputs; coefficients; what a layer added to the first stream */
    BUFFER_STREAM_MIX,
    BUFFER_STREAM_CHANGE,
    BUFFER_LAUREL_LATENT, /* the low-rank residual */
    BUFFER_LAUREL,
    BUFFER_SCRATCH,      /* outputs of products that begin with those of other ranks */
    BUFFER_STATE_INPUTS, /* recurrent layers: struct state_inputs */
    BUFFER_STATE_Z,      /* the output's gate; the input's gate: */
    BUFFER_STATE_B,
    BUFFER_STATE_LOW, /* low-rank projections: inner values of the decays and of the output's gate */
    BUFFER_STATE_CONVOLVED,
    BUFFER_STATE_Y,   /* the recurrence's output */
    BUFFER_STATE_OUT, /* output of this rank's heads; of all ranks: */
    BUFFER_STATE_ALL,
    BUFFER_ROUTED, /* experts: the router's input */
    BUFFER_EXPERT_LOGITS,
    BUFFER_CHOSEN,
    BUFFER_WEIGHT,
    BUFFER_EXPERT_IN, /* of all pairs of a row, one after the other, as the next two */
    BUFFER_EXPERT_UP,
    BUFFER_EXPERT_OUT,
    BUFFER_SHARED_UP,
    BUFFER_SHARED,
    BUFFER_PREDICTED, /* the next layer's experts */
    BUFFER_PREDICTED_WEIGHT,
    BUFFER_ARENA, /* number of buffers in the arena; others: */
    BUFFER_LOGITS = BUFFER_ARENA,
    BUFFER_TAP,
    BUFFERS
};

/* A range of operations in the list. */
struct op_range {
    size_t first, n;
};

/* The operations of a forward pass, and what was found out while they were listed. */
struct op_list {
    struct op *op;
    size_t n, cap;
    struct op_product *product; /* of all operations */
    size_t n_products, product_cap;
    size_t width[BUFFERS]; /* of each buffer, in elements */
    struct op_range embed, draft_own, layers, head;
    /* of one block of the head's tokens; none: several processes, or no head */
    struct op_range token_head;
    struct op_weight head_weight;
    size_t token_product; /* number of token_head's product, whose weights are a block of head_weight */
    struct op_range final_norm; /* from BUFFER_X to BUFFER_H, for taps */
    struct op_range pooled; /* of one pooled state: dense layers after pooling; none: there are none */
    struct op_range *predict; /* [layers]: the choice of a layer's experts in advance; NULL: not made */
    size_t outputs_from;      /* from here on, only rows whose output is needed */
};
