/* Layers whose MLP is a mixture of experts. */
#ifndef BMC_EXPERTS_H
#define BMC_EXPERTS_H

#include "kernel/gemm.h"
#include "model/model.h"

/* Buffers for the experts of a forward pass; a pair is a row of the batch and an expert that it
 * chose, numbered expert by expert. */
struct experts {
    const struct model *model;
    const struct kernels *kernels;
    struct gemm *gemm;  /* products of pairs */
    struct gemm *plain; /* of rows: router and shared MLP; borrowed */
    enum epilogue_act act;
    float *logits;           /* [max_rows][experts] */
    float *scratch;          /* [threads][2 * experts] of router_choose() */
    uint32_t *chosen;        /* [max_rows][experts_used] */
    float *weight;           /* [max_rows][experts_used] */
    uint32_t *pair;          /* [max_rows][experts_used]: number of the pair */
    uint32_t *pair_row;      /* [pairs] row of the batch */
    size_t *rows;            /* [experts]: pairs of each expert that is used */
    size_t *at;              /* [experts] */
    struct product *product; /* [experts] */
    struct mat *mat;         /* [2][experts] */
    float *up;               /* [pairs][expert_ffn] */
    float *out;              /* [pairs][hidden] */
    float *shared_up;        /* [max_rows][shared_ffn] */
    float *shared;           /* [max_rows][hidden] */
    uint64_t runs;           /* experts whose weights were read, over all layers and steps so far */
};

/* Allocates buffers for passes of up to `max_rows` rows; nothing if the model has no experts. `plain`
 * and `model` are borrowed. */
int experts_open(struct experts *experts, const struct model *model, const struct kernels *kernels,
                 enum precision precision, struct gemm *plain, enum epilogue_act act, size_t max_rows,
                 struct err *err) MUST_USE;
void experts_close(struct experts *experts); /* a struct of zeros is accepted */

/* y[rows][hidden] = experts(x) + shared MLP(x), added to y if `add`. x[rows][hidden] may not be y. */
void experts_run(struct experts *experts, size_t layer, const float *x, float *y, bool add,
                 size_t rows);

#endif
