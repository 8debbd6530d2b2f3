/* LoRA adapters in the forward pass: which sequences use which. Not under tensor or pipeline parallelism. */
#ifndef BMC_FORWARD_LORA_H
#define BMC_FORWARD_LORA_H

#include "model/forward.h"
#include "model/lora/lora.h"

/* Allocates f->lora, if the model has adapters. */
int forward_lora_open(struct forward *forward, struct err *err) MUST_USE;
void forward_lora_close(struct forward *forward);

/* Sets the factors of a sequence's adapters, which are 1 at first and with NULL; true if that changes any,
 * so that KV entries which the sequence has do not fit. */
bool forward_lora_set(struct forward *forward, size_t seq, const float *factor);
const float *forward_lora_factors(const struct forward *forward, size_t seq); /* NULL: no adapters */
bool forward_lora_same(const struct forward *forward, size_t a, size_t b);

/* Sets the adapters of a pass. */
void forward_lora_begin(struct forward *forward, struct op_step *step);

#endif
