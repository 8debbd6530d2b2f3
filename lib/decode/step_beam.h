/* Beam search as a decoding strategy: each request has W cache sequences, reordered every step. */
#pragma once

#include "decode/sample/beam.h"
#include "decode/session.h"
#include "decode/step.h"

struct step_beam;

/* Opens beam search, which reports the `n_best` best beams of each request. The session can serve
 * batch / options->width requests at a time. */
int step_beam_open(struct step_beam **beam, const struct session *session,
                   const struct beam_options *options, size_t n_best, struct err *err) MUST_USE;
void step_beam_close(struct step_beam *beam); /* NULL is accepted */

/* The strategy to pass to generate(). */
const struct step_strategy *step_beam_strategy(const struct step_beam *beam);
