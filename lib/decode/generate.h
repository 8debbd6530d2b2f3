/* The generation loop: requests in, text out, with continuous batching.
 *
 * Prompts are prefilled in chunks; decoding steps then advance all sequences in flight. A sequence
 * ends on its own, and the next request takes its slot. */
#ifndef BMC_GENERATE_H
#define BMC_GENERATE_H

#include <signal.h>

#include "decode/gen_types.h"
#include "decode/strategy/step.h"

/* Runs until there are no more requests, or until *interrupted is not 0: sequences in flight then
 * end with the tokens they have. A NULL strategy decodes one token per step. Each request
 * occupies strategy->width sequences of the session. */
int generate(struct session *session, const struct sampler_options *sampling,
             const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
             const volatile sig_atomic_t *interrupted, struct gen_stats *stats,
             struct err *err) MUST_USE;

#endif
