/* A model.bmc, or the draft head in one, as a source of weights. */
#pragma once

#include "format/bmc/bmcfile.h"
#include "model/convert/tensor_import.h"

/* Converts rows of a tensor of a file to `out`, like tensor_sources_rows(); those of a call belong to one matrix, and of
 * quantised ones begin at a multiple of 16 rows in it. `to` may be quantised only if it is the tensor's type. */
enum import_result model_source_rows(const struct bmc_file *file, const struct bmc_tensor *tensor,
                                     size_t first_row, size_t rows, enum dtype to, void *out);
