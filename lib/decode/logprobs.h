/* Log-probabilities that requests ask for, of what was chosen and of prompts. A part of the generation loop. */
#ifndef BMC_LOGPROBS_H
#define BMC_LOGPROBS_H

#include "decode/loop.h"

/* Of the token that the slot has just got: its own and the best ones'. */
int logprobs_add(struct loop *loop, struct slot *slot, const float *logits, struct err *err) MUST_USE;

/* Makes room for those of the prompt, of which none is known yet. */
int logprobs_begin_prompt(struct slot *slot, struct err *err) MUST_USE;

/* After a step: of the prompt tokens that follow the slot's rows in it. */
int logprobs_of_step(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

#endif
