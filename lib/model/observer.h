/* Observers of products get their inputs, whatever memory a backend has them in. */
#pragma once

#include "backend/op.h"

/* Gets x[rows][in], inputs of the product with `weight`, the struct linear of the model; of a stack of experts, which
 * begins there, with number `expert`. Called for rows in order of the batch, or expert by expert. */
typedef void observe_inputs(void *arg, const void *weight, size_t expert, const float *x,
                            size_t x_stride, size_t rows);

struct observer {
    observe_inputs *observe; /* NULL: none */
    void *arg;
    const struct backend_memory *memory;
    float *x; /* a copy of the inputs */
    size_t cap;
};

void observer_release(struct observer *observer);

/* Copies rows of an operand of `width` elements; the copy is valid until the next one. NULL: out of memory. */
const float *observer_read(struct observer *observer, const struct op_step *step, struct op_arg x,
                           size_t width, struct row_range rows, struct err *err);

/* Tells the inputs of a product and its gate. */
void observer_tell(const struct observer *observer, const struct op_product *product, size_t expert,
                   const float *x, size_t x_stride, size_t rows);

/* Tells the inputs of an operation that is about to run, if it consists of products. */
int observe_op(struct observer *observer, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err) MUST_USE;
