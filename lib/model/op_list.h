/* Making the list of a forward pass's operations: one function per kind, which appends an operation to the list. They
 * resolve whatever the configuration says, so that nothing asks it when the list runs. */
#pragma once

#include "model/forward.h"

struct builder {
    struct forward *f;
    struct op_list *list;
    const struct config *c;
    const struct weights *weights;
    struct kv_setup setup;    /* of the cache */
    enum forward_phase phase; /* of the operations that follow */
    bool on_host;             /* who runs them, of a model that is split */
    /* the layer whose operations follow */
    size_t layer;
    const struct layer_plan *plan;
    const struct layer *w;
    /* the configuration with the layer's sizes; and with this rank's heads: */
    const struct config *sizes;
    struct config own, other_sizes;
    struct op unused; /* stands for an operation if there is no memory */
    bool failed;      /* there was no memory, as *err says */
    struct err *err;
};

/* ---- weights, in the memory of the backend ---- */

struct device_addr vector_of(struct builder *b, const float *vector, size_t n);
struct op_matrix matrix_of(struct builder *b, const struct mat *mat);
struct op_weight weight_of(struct builder *b, const struct linear *w);
/* Of the first expert of a stack, of `outputs` outputs on all ranks; no address if experts are read from the file. */
struct op_weight expert_weight_of(struct builder *b, const struct linear *w, size_t outputs);

/* ---- operations ---- */

/* Those of a part of a split model follow, split_part: a layer, or what comes before or behind. */
void begin_part(struct builder *b, size_t part);

/* Begins the operations of a layer; its sizes count from here on. */
void begin_layer(struct builder *b, size_t layer);

/* The number of the next operation, for ranges of the list. */
static inline size_t list_end(const struct builder *b) { return b->list->n; }

/* The first `width` columns of a buffer; makes the buffer that wide. */
struct op_arg buffer_of(struct builder *b, enum buffer buffer, size_t width);
static inline struct op_arg hidden_of(struct builder *b, enum buffer buffer)
{
    return buffer_of(b, buffer, buffer == BUFFER_X ? config_stream_width(b->c) : b->c->hidden);
}

/* An operand without its first `n` columns. */
static inline struct op_arg columns(struct op_arg x, size_t n)
{
    x.column += n;
    return x;
}

/* The columns of an operand of dimension `dim` that this rank computes. */
struct op_arg own_columns(const struct builder *b, struct op_arg all, enum dim dim);

/* Appends an operation without parameters; valid until the next one is appended, as are those that other functions
 * return. */
struct op *append_op(struct builder *b, enum op_kind kind, struct op_arg in, struct op_arg out,
                     size_t width);

struct op *op_norm(struct builder *b, struct op_arg in, struct op_arg out, size_t width,
                   const struct norm_weights *weights);
/* Each of `groups` of `width` elements, with gains of its own from number `first` on, or the same. */
void op_norm_groups(struct builder *b, struct op_arg x, size_t width, size_t groups, bool own_gains,
                    size_t first, const struct norm_weights *weights);
void op_scale(struct builder *b, struct op_arg x, size_t width, double factor); /* 0: 1 */
void op_add(struct builder *b, struct op_arg to, struct op_arg x, size_t width);
void op_copy(struct builder *b, struct op_arg to, struct op_arg from, size_t width);
void op_clip(struct builder *b, struct op_arg x, size_t width, double limit); /* 0: none */
void op_gate(struct builder *b, struct op_arg x, struct op_arg gate, size_t width,
             enum epilogue_act act);
/* The same with a sigmoid of one gate for each `group` elements. */
void op_gate_groups(struct builder *b, struct op_arg x, struct op_arg gate, size_t width, size_t group);
struct op *op_fetch(struct builder *b, struct op_arg to, const struct mat *table, double factor);

/* Appends to the products of the last operation. */
void append_product(struct builder *b, const struct op_product *product);

/* Products of x, without those whose weights the model does not have. */
void op_linear(struct builder *b, struct op_arg x, const struct op_product *product, size_t n);

/* All-gathers the columns `own` of each rank to `all`; none for a single process. */
void op_gather(struct builder *b, enum dim dim, struct op_arg own, struct op_arg all);

/* The activation of the model's MLPs, for a product with or without a gate, and a limit of the layer's. */
struct op_product activated(const struct builder *b, double limit);

/* Where products find their adapters. */
static inline size_t adapter_of(const struct builder *b, enum lora_target target)
{
    return b->f->model->loras ? b->layer * LORA_TARGETS + target + 1 : NO_ADAPTER;
}

/* ---- parts of layers ---- */

/* The norm of x for a sublayer, in the buffer `normed`, where norm_place has one; else x. */
struct op_arg sublayer_input(struct builder *b, enum buffer normed);
struct op_arg pre_norm(struct builder *b, enum buffer normed, const struct norm_weights *weights);

/* Where a sublayer's output goes: added to x, or to `branch` where a post-norm or a factor follows. */
struct op_arg output_of(struct builder *b);

/* x += y W + bias or, where a post-norm or a factor follows, branch = y W + bias. */
void output_projection(struct builder *b, struct op_arg y, const struct linear *w, size_t adapter);

/* latent_ops.c: q and k as attention reads them, from h; the heads' outputs from sums of latents. */
void latent_projection(struct builder *b, struct op_arg h, struct op_arg q, struct op_arg k);
void latent_outputs(struct builder *b, struct op_arg context, struct op_arg attn_out);
/* The positions that attention is limited to, if an indexer has chosen them. */
void latent_choice(struct builder *b, struct op_attend *attend);

/* state_ops.c: what a recurrent layer does before and after its recurrence. */
void state_projection(struct builder *b, struct op_arg h);
void state_recurrence(struct builder *b);
void state_output(struct builder *b);

/* expert_ops.c: y (+)= experts(h), all columns of it; choices may depend on the residual stream. */
void mixture_of_experts(struct builder *b, struct op_arg h, struct op_arg y, bool add);
/* list->predict, if experts are read from the file */
void experts_predictions(struct builder *b);

/* embed_ops.c: x of the first layer; what layers add of inputs of their own; the input of a draft head's attention. */
void embedding(struct builder *b);
void draft_embedding(struct builder *b, bool own_features);
void add_layer_input(struct builder *b);
struct op_arg join_embedding(struct builder *b, struct op_arg h);

/* stream_ops.c: AltUp before the first layer and behind the last, and around a layer; the low-rank residual; none where
 * the model has none. */
void split_streams(struct builder *b);
void merge_streams(struct builder *b);
void predict_streams(struct builder *b);
void correct_streams(struct builder *b);
void laurel(struct builder *b, struct op_arg h);
void add_laurel(struct builder *b);

/* layer_ops.c */
void layer_operations(struct builder *b);
void head_operations(struct builder *b);
void token_head_operations(struct builder *b);
void pooled_operations(struct builder *b);
