/* The generation loop: requests in, text out, with continuous batching.
 *
 * Prompts are prefilled in chunks; decoding steps then advance all sequences in flight. When a
 * sequence ends, the next request starts in its slot. */
#pragma once

#include <signal.h>

#include "decode/gen_types.h"
#include "decode/step.h"

/* Serves requests until there are no more, or until *interrupted is not 0: sequences in flight then
 * end with the tokens they have. A NULL strategy decodes one token per step. Each request
 * occupies strategy->width sequences of the session. */
int generate(struct session *session, const struct sampler_options *sampling,
             const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
             const volatile sig_atomic_t *interrupted, struct gen_stats *stats,
             struct err *err) MUST_USE;

/* generate() in a session whose sequences have KV entries from before: cached[batch] are their tokens.
 * Requests reuse these entries, and overwrite them as needed. Afterwards `cached` has the tokens of all
 * entries that are left, also on error. The strategy's width is 1. */
int generate_cached(struct session *session, const struct sampler_options *sampling,
                    const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
                    const volatile sig_atomic_t *interrupted, struct ids *cached,
                    struct gen_stats *stats, struct err *err) MUST_USE;
