/* Layers whose MLP is a mixture of experts: runs those that the rows of a pass have chosen. */
#pragma once

#include "backend/backend.h"
#include "model/observer.h"
#include "model/ops.h"
#include "model/parallel/shard.h"

/* Lists of the experts of a forward pass; a pair is a row of the batch and an expert that it
 * chose, numbered expert by expert in the order in which they run. */
struct experts {
    const struct model *model;
    const struct backend *backend;
    struct backend_pass *pass;
    const struct op_list *list;
    struct shard *shard;
    struct observer *observer;
    uint32_t *chosen;      /* [max_rows][experts_used], of the rows that run */
    uint32_t *pair;        /* [max_rows][experts_used]: number of the pair */
    uint32_t *pair_row;    /* [pairs] row, among those that run */
    uint32_t *pair_choice; /* [pairs] index in `chosen` */
    uint32_t *choice;      /* [pairs] indices in `chosen`, expert by expert, ascending */
    size_t *used;          /* [experts]: experts that are used, ascending */
    size_t *first, *count; /* [experts]: of each that is used, the first in `choice`; their number */
    size_t *rank_first;    /* [ranks + 1]: first pair of each rank, if experts are distributed */
    size_t *ready;         /* [experts]: indices in `used` */
    size_t *at;            /* [experts] */
    /* the groups that run */
    size_t *rows, *expert;    /* [experts] */
    struct device_addr *data; /* [3][experts]: matrices of experts that are read from the file */
    /* predictions of the next layer's experts */
    uint32_t *guess;     /* [experts] */
    float *guess_weight; /* [experts], then one per row and choice */
    uint64_t runs;       /* experts whose weights were read, over all layers and steps so far */
};

/* Allocates buffers for passes of up to `max_rows` rows; nothing if the model has no experts. All pointers are
 * borrowed. */
int experts_open(struct experts *experts, const struct model *model, const struct backend *backend,
                 struct backend_pass *pass, const struct op_list *list, struct shard *shard,
                 struct observer *observer, size_t max_rows, struct err *err) MUST_USE;
void experts_close(struct experts *experts); /* a struct of zeros is accepted */

/* Runs OP_EXPERTS: the outputs of all pairs, the columns that this rank has. Sets `pair`, which OP_MIX reads. Fails if
 * weights cannot be read (expert_store.h); outputs are then undefined. */
int experts_run(struct experts *experts, const struct op *op, const struct op_step *step,
                struct row_range rows, struct err *err) MUST_USE;
