/* Layers whose MLP is a mixture of experts. */
#ifndef BMC_EXPERTS_H
#define BMC_EXPERTS_H

#include "kernel/gemm.h"
#include "model/model.h"
#include "model/parallel/shard.h"

/* Buffers for the experts of a forward pass; a pair is a row of the batch and an expert that it
 * chose, numbered expert by expert in the order in which they run. */
struct experts {
    const struct model *model;
    const struct kernels *kernels;
    struct gemm *gemm;   /* products of pairs */
    struct gemm *plain;  /* of rows: router and shared MLP; borrowed */
    struct shard *shard; /* borrowed */
    enum epilogue_act act;
    float *logits;           /* [max_rows][experts] */
    float *scratch;          /* [threads][2 * experts] of router_choose() */
    uint32_t *chosen;        /* [max_rows][experts_used] */
    float *weight;           /* [max_rows][experts_used] */
    uint32_t *pair;          /* [max_rows][experts_used]: number of the pair */
    uint32_t *pair_row;      /* [pairs] row of the batch */
    uint32_t *choice;        /* [pairs] indices in `chosen`, expert by expert, ascending */
    size_t *used;            /* [experts]: experts that are used, ascending */
    size_t *first, *count;   /* [experts]: of each that is used, the first in `choice`; their number */
    size_t *rank_first;      /* [ranks + 1]: first pair of each rank, if experts are distributed */
    size_t *rows;            /* [experts]: pairs of each expert that runs */
    size_t *ready;           /* [experts]: indices in `used` */
    size_t *at;              /* [experts] */
    struct product *product; /* [experts] */
    struct mat *mat;         /* [2][experts] */
    float *in;               /* [pairs][hidden]: with router_input */
    float *up;               /* [pairs][expert_ffn] */
    float *out;              /* [pairs][hidden] */
    float *shared_up;        /* [max_rows][shared_ffn] */
    float *shared;           /* [max_rows][hidden] */
    float *routed;           /* [max_rows][hidden]: the router's input, with expert_beside */
    /* predictions of the next layer's experts */
    float *next;         /* [rows][hidden] */
    uint32_t *guess;     /* [experts] */
    float *guess_weight; /* [2][experts] */
    uint64_t runs;       /* experts whose weights were read, over all layers and steps so far */
};

/* Allocates buffers for passes of up to `max_rows` rows; nothing if the model has no experts. `plain`,
 * `model` and `shard` are borrowed. */
int experts_open(struct experts *experts, const struct model *model, const struct kernels *kernels,
                 enum precision precision, struct gemm *plain, enum epilogue_act act, size_t max_rows,
                 struct shard *shard, struct err *err) MUST_USE;
void experts_close(struct experts *experts); /* a struct of zeros is accepted */

/* True if experts_run() computes all columns of y on each rank: whole experts are distributed, and there is no
 * shared MLP. */
bool experts_are_whole(const struct experts *experts);

/* Computes the columns of y that this rank has (shard.h); the caller gathers the others.
 *
 * y[rows][hidden] = experts(x) + shared MLP(x), added to y if `add`. x[rows][hidden] may not be y;
 * `residual`, which may, is the residual stream, from which the next layer's experts are predicted and,
 * with expert_beside, those of this layer are chosen. Fails if weights cannot be read (expert_store.h); y is then undefined. */
int experts_run(struct experts *experts, size_t layer, const float *x, const float *residual, float *y,
                bool add, size_t rows, struct err *err) MUST_USE;

#endif
