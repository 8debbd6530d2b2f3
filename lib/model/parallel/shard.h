/* The shard of a model on one rank, and the all-gather of activations.
 *
 * Tensor parallel: a rank has a range of outputs of every matrix that a GEMM reads, from a multiple
 * of 16 (the block of the packed layout) to another; of Q, K and V it has the outputs of a range of
 * KV heads, and the cache of these heads. With latent attention it has a range of heads, and all KV
 * entries, as every head reads them; every rank computes the latents. Of recurrent layers it has a range
 * of heads, or of channels of a short convolution, and their states. Inputs of layers of their own
 * (embed_ops.c) are computed by every rank. It computes each output exactly as a single process does,
 * then the outputs are all-gathered and never summed across ranks: logits are bitwise identical.
 *
 * Experts are split like an MLP: a rank has a range of outputs of every expert. Or, expert parallel, they are
 * distributed: a rank has a range of whole experts, whose outputs are all-gathered, and each rank adds them up
 * in the order of a single process. Routers are not split.
 *
 * Pipeline parallel: a rank has a range of layers and their cache; rank 0 also the embedding, the
 * last rank the head (pipeline.h).
 *
 * A rank reads only its own part of the mapped file. */
#pragma once

#include "backend/op.h"
#include "ranks/ranks.h"
#include "model/model.h"
#include "model/weight_kinds.h"

/* Outputs [first, first + n) of a matrix. */
struct shard_range {
    size_t first, n;
};

/* True if every rank computes all outputs of dimension `dim`: routers, latents, and the keys of recurrent
 * layers that heads of several ranks need. */
bool shard_replicates(const struct config *config, enum dim dim);

/* The most ranks over which the heads of attention and of recurrent layers can be split. */
size_t shard_most_ranks(const struct config *config);

/* The outputs of dimension `dim` that rank `rank` of `size` computes. */
struct shard_range shard_range(const struct config *config, enum dim dim, size_t rank, size_t size);

/* The experts that rank `rank` of `size` has, if they are distributed. */
struct shard_range shard_experts(const struct config *config, size_t rank, size_t size);

/* The configuration with the sizes of a layer and this rank's number of heads. Its layers are all layers, on whose
 * number traits of layers depend. */
struct config shard_config(const struct model *model, size_t layer);

/* The larger of two ranges: with more KV entries per token. */
struct layer_range shard_larger_layers(const struct config *config, struct layer_range a,
                                       struct layer_range b);

/* Shapes of the KV entries and recurrent states of sequences. */
struct shard_shapes {
    struct kv_shape kv;
    struct state_shape state; /* all 0: the model has no layers with recurrent state */
};

/* The shapes of this rank's layers and heads, and those of the whole model. A rank without attention
 * layers has the KV entries of one, unused, which count its tokens; it may have 0 layers with state. */
struct shard_shapes shard_shapes(const struct model *model, size_t max_rows,
                                 const struct cache_types *types);
struct shard_shapes shard_shapes_all(const struct model *model, size_t max_rows,
                                     const struct cache_types *types);

/* The shapes of the rank with the most KV entries, and of the one with the largest state. */
struct shard_shapes shard_shapes_max(const struct model *model, size_t max_rows,
                                     const struct cache_types *types);

enum {
    SHARD_LOGITS_FLOATS = 1 << 16, /* maximum floats of logits per gather */
    SHARD_MIN_ROWS = 64,           /* rows per slice at least: smaller GEMMs are slower per row */
    SHARD_MAX_SLICES = 4
};

/* A batch of `rows` rows is computed in slices, so that the all-gather of one slice overlaps with
 * computing the next: the number of slices, and the rows of one. */
size_t shard_slices(size_t rows);
/* Layers with experts are not sliced: their experts would be read once per slice. */
size_t shard_slices_of(const struct config *config, size_t rows);
struct row_range shard_rows(size_t rows, size_t slices, size_t slice);

/* State of one forward pass. */
struct shard {
    /* of all ranks, with the sizes of the layer whose operations are listed */
    const struct config *config;
    struct ranks *ranks; /* NULL: not tensor parallel */
    const struct config *model;
    struct config *sizes; /* [layers]: the configuration with the sizes of each layer */
    bool expert_parallel; /* each rank has whole experts */
    const struct backend_memory *memory;
    const struct device_addr *buffers; /* of operands */
    /* [max_rows][buffer_width]: gathered outputs of a slice from its first row on, rank by rank */
    float *buffer;
    size_t buffer_width;
    size_t *bytes; /* [ranks] bytes of each rank's outputs */
    struct pending_gather {
        const struct config *config;
        enum dim dim;
        struct row_range rows;
        struct op_arg all;
        float *gathered;
    } pending[SHARD_MAX_SLICES]; /* in flight, oldest first */
    size_t n_pending;
    double progress_ms; /* clock_ms() of the last call of ranks_ops.progress() */
    double wait_ms;     /* spent waiting for gathers */
};

/* `buffers` has the addresses of operands' buffers, when operations run. */
int shard_open(struct shard *shard, const struct model *model, size_t max_rows,
               const struct backend_memory *memory, const struct device_addr *buffers,
               struct err *err) MUST_USE;
void shard_close(struct shard *shard);

/* Sets the layer to which the dimensions of what follows belong. */
void shard_set_layer(struct shard *shard, size_t layer);

/* The outputs of dimension `dim` that this rank computes. */
struct shard_range shard_local_range(const struct shard *shard, enum dim dim);

/* Starts the all-gather of every rank's columns `own` to `all`, whose width is that of dimension `dim` in a
 * configuration with the layer's sizes; logits (DIM_VOCAB) go to rank 0 only. `own` may be columns of `all`. For few
 * rows and for logits the gather completes before the return, else in shard_gather_finish(). */
int shard_gather_start(struct shard *shard, const struct config *sizes, enum dim dim, struct op_arg own,
                       struct op_arg all, struct row_range rows, struct err *err) MUST_USE;

/* All-gathers rows that each rank has computed whole: rank r has rows first[r] to first[r + 1] - 1. */
int shard_gather_rows(struct shard *shard, struct op_arg all, const size_t *first,
                      struct err *err) MUST_USE;

/* Completes all gathers that overlap with these rows. */
int shard_gather_finish(struct shard *shard, struct row_range rows, struct err *err) MUST_USE;
