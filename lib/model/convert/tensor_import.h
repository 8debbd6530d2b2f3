/* Locates the rows of a weight kind in a source tensor, transposes, reorders and converts them. */
#pragma once

#include "format/split_weights.h"
#include "model/convert/tensor_transform.h"

/* Result of converting values, in ascending order of severity. */
enum import_result {
    IMPORT_FINITE,
    IMPORT_TOO_LARGE, /* finite in the source, overflows the target type */
    IMPORT_BROKEN,    /* NaN or infinite in the source */
    IMPORT_NO_MEMORY,
};

enum { CONV_PARTS = 3 }; /* channels of queries, keys and values, which are as many of each */

struct tensor_import {
    const struct source_tensor *from; /* NULL: none */
    const struct block_type *type;    /* of its elements */
    size_t columns;                   /* elements per output row */
    size_t base;                      /* first element, of an expert in a tensor for all */
    size_t row_step, column_step;     /* strides in the source, in elements */
    /* output row r is source row r / group * group_from + first + r % group */
    size_t group, group_from, first;
    /* of k_b in kv_b, whose columns are its rows: elements between groups; 0: as above */
    size_t group_step;
    /* set if the source has rotary pairs adjacent, in elements [rope_at, rope_at + rope_dim) of heads;
     * else 0 */
    size_t head_dim, rope_dim, rope_at;
    bool per_head;     /* the vector is that of one head */
    bool conv_part;    /* the weights are those of a third of a convolution's channels */
    size_t taps;       /* > 0: a convolution's weights, [channels][taps] in the source */
    bool plus_one;     /* add 1 (norm gains) */
    bool exp, negated; /* take the exponential, or the value with the other sign */
};

/* True if rows are gathered from quantised blocks of several rows of the source, so that these cannot be
 * transcoded. */
static inline bool tensor_import_gathers(const struct tensor_import *import)
{
    return (import->type->elements > 1 || import->from->split) && import->column_step != 1;
}

/* Checks that a source tensor fits its transform and the configuration, and prepares the import; `expert`
 * is the number of the expert in a tensor of all. `name` is the source's name in errors. */
int tensor_import_plan(struct tensor_import *import, const struct source_tensor *from,
                       const struct tensor_transform *transform, const struct weight_kind *kind,
                       size_t expert, const struct config *config, const char *name,
                       struct err *err) MUST_USE;

/* The order of rows alone, for other tensors whose rows are those of a weight kind: prepares the import
 * for tensor_import_source_row(), and sets *rows to the number of rows of the source tensor. Fails for
 * kinds that are not single matrices with an order of rows. */
int tensor_import_order(struct tensor_import *import, size_t *rows, const struct source_tensor *from,
                        const struct tensor_transform *transform, const struct weight_kind *kind,
                        const struct config *config, const char *name, struct err *err) MUST_USE;

/* The source row, or column if transposed, that an output row is read from. */
size_t tensor_import_source_row(const struct tensor_import *import, size_t row);

/* Converts output rows [first_row, first_row + rows) to `out` [rows][columns]; returns the worst
 * result of all elements. `to` may be quantised only if it is the type that the source's blocks
 * are transcoded to. */
enum import_result tensor_import_rows(const struct tensor_import *import, size_t first_row, size_t rows,
                                      enum dtype to, void *out);
