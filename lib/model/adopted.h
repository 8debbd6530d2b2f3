/* Weights as operations name them: in the memory of a backend, which adopts each of them when an operation is made that
 * reads it. What no operation of this rank reads, as experts that are read from the file, is not adopted. */
#pragma once

#include "backend/op.h"
#include "base/err.h"

/* Blocks of backends' memory, to be given back. */
struct adopted {
    /* of the next; NULL: lists that nothing runs have addresses of nothing */
    const struct backend_memory *memory;
    struct adopted_block {
        const struct backend_memory *memory;
        struct device_addr at;
        size_t bytes;
    } * block;
    size_t n, cap;
};

/* The address of `bytes` bytes of weights; none for NULL. Fails if the backend has no memory for them. */
int adopt_weights(struct adopted *adopted, const void *weights, size_t bytes, struct device_addr *at,
                  struct err *err) MUST_USE;

/* adopt_weights() of a packed matrix or a table; a matrix without data becomes one of zeros. */
int adopt_matrix(struct adopted *adopted, const struct mat *mat, struct op_matrix *to,
                 struct err *err) MUST_USE;

void adopted_release(struct adopted *adopted);
