/* What the operations of a forward pass add up to: bytes of weights and KV entries, multiply-accumulates. */
#pragma once

#include "model/forward.h"

/* Of this rank. Sums over layers; KV entries as a cache of the given type stores them, whatever the windows of layers. */
struct op_counts {
    /* Weights that a decode step of one token reads: matrices with their scales, of experts as many as a token uses,
     * norms, biases and other vectors, the head. Without padding, and without tables of which it reads one row. */
    size_t weight_bytes;
    size_t expert_bytes;  /* one expert of each layer that has experts */
    size_t row_macs;      /* all products of a token but those of the head: */
    size_t head_macs;     /* of a token whose logits are needed */
    size_t context_macs;  /* attention of a token to an entry */
    size_t append_bytes;  /* KV entries of a token */
    size_t context_bytes; /* entries of a token that attention of a later one reads */
};

/* Counts the operations of a model, for which no session is open. Needs no data of weights, see weights_shape(). */
int model_counts(struct op_counts *counts, const struct model *model,
                 const struct cache_types *kv_types, struct err *err) MUST_USE;
