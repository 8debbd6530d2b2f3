/* LoRA adapters in the forward pass: y += B (A x) beside the products of the model's weights, in f32
 * whatever the types of weights and activations. Every function returns at once if there are none, and
 * rows of sequences without adapters keep their bits. Not under tensor or pipeline parallelism. */
#ifndef BMC_FORWARD_LORA_H
#define BMC_FORWARD_LORA_H

#include "model/forward.h"
#include "model/lora/lora.h"

/* Allocates buffers for the model's adapters, if it has any. */
int forward_lora_open(struct forward *forward, struct err *err) MUST_USE;
void forward_lora_close(struct forward *forward);

/* Sets the factors of a sequence's adapters, which are 1 at first and with NULL; true if that changes any,
 * so that KV entries which the sequence has do not fit. */
bool forward_lora_set(struct forward *forward, size_t seq, const float *factor);
const float *forward_lora_factors(const struct forward *forward, size_t seq); /* NULL: no adapters */
bool forward_lora_same(const struct forward *forward, size_t a, size_t b);

/* Called at the start of each pass. */
void forward_lora_begin(struct forward *forward, const struct step *step);

/* Adds a layer's adapters to y[rows][y_stride], the output of the product with x; both begin at row 0 of
 * the batch. */
void forward_lora_add(struct forward *forward, enum lora_target target, size_t layer, const float *x,
                      float *y, size_t y_stride, struct row_range rows);

/* True if forward_lora_up() must compute the first product of a layer's MLP: the activation follows what
 * adapters add. */
bool forward_lora_adapts_up(const struct forward *forward, size_t layer);

/* gemm_run() of the product of Wup, with its gate and activation, for rows of x; x and product->y begin at
 * row 0 of the batch. */
void forward_lora_up(struct forward *forward, const struct product *product, size_t layer,
                     const float *x, struct row_range rows);

#endif
