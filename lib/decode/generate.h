/* The generation loop: requests in, text out, a ragged batch in between.
 *
 * Every sequence ends on its own; the next request takes its place. A prompt is prefilled in chunks,
 * then decode steps carry all sequences that are under way. */
#ifndef BMC_GENERATE_H
#define BMC_GENERATE_H

#include <signal.h>

#include "decode/gen_types.h"
#include "decode/step.h"

/* `strategy` says how tokens come (step.h); NULL is one token a step. Of the session's sequences each request takes as many as
 * the strategy is wide.
 * Runs until there are no more requests, or *interrupted is not 0: then sequences under way end with
 * what they have. */
int generate(struct session *session, const struct sampler_options *sampling,
             const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
             const volatile sig_atomic_t *interrupted, struct gen_stats *stats,
             struct err *err) MUST_USE;

#endif
