/* The source tensors of an output tensor: one, or one of each expert or head, or of queries, keys and values. */
#pragma once

#include "format/bmc/bmcfile.h"
#include "model/convert/tensor_import.h"
#include "model/family/family.h"

struct tensor_sources {
    struct tensor_import *import; /* [n]: of each matrix or vector of a stack */
    size_t n;                     /* 0: none, as in a synthetic model */
    size_t rows;                  /* of each that follow one another, before those of the next */
    bool vectors;                 /* a stack of vectors: each is a row of the output tensor */
};

/* Finds the source tensors of a weight kind by the family's names, and plans their import. The error
 * for a missing tensor has the first of its possible names. */
int tensor_sources_find(struct tensor_sources *sources, const struct weight_source *source,
                        const struct family *family, const struct config *config,
                        const struct weight_kind *kind, size_t layer, struct err *err) MUST_USE;
void tensor_sources_release(struct tensor_sources *sources);

/* tensor_import_rows() for rows of the output tensor; those of a call belong to one matrix, or are vectors. */
enum import_result tensor_sources_rows(const struct tensor_sources *sources, size_t first_row,
                                       size_t rows, enum dtype to, void *out);

/* The source tensor of a weight kind outside layers; NULL: there is none. */
const struct source_tensor *tensor_sources_single(const struct weight_source *source,
                                                  const struct family *family, const char *kind);

/* tensor_sources_rows() of a tensor of a model.bmc, or of the draft head in one: rows of a call belong to one matrix, and
 * of quantised ones begin at a multiple of 16 rows in it. `to` may be quantised only if it is the tensor's type. */
enum import_result model_source_rows(const struct bmc_file *file, const struct bmc_tensor *tensor,
                                     size_t first_row, size_t rows, enum dtype to, void *out);
