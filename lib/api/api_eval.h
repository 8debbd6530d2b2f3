/* The state of an input of bmc_eval() during the call. */
#ifndef BMC_API_EVAL_H
#define BMC_API_EVAL_H

#include "api/api.h"

struct eval_part {
    struct bmc_input input;
    size_t before;  /* tokens of the sequence before the call */
    size_t done;    /* tokens of the input that have been processed */
    size_t outputs; /* outputs that have been computed */
    size_t row, n;  /* in the current pass: its first token's index in the batch, number of tokens */
};

/* bmc_eval() with an internal error. */
int api_eval(struct bmc_context *context, const struct bmc_input *inputs, size_t n,
             struct err *err) MUST_USE;

#endif
