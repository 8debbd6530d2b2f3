/* Steps of beam search: each request has W sequences of the cache, which change places. */
#ifndef BMC_STEP_BEAM_H
#define BMC_STEP_BEAM_H

#include "decode/beam.h"
#include "decode/session.h"
#include "decode/step.h"

struct step_beam;

/* Results have the best `n_best` texts of each request. Of a session's sequences a request takes as many as there are beams. */
int step_beam_open(struct step_beam **beam, const struct session *session,
                   const struct beam_options *options, size_t n_best, struct err *err) MUST_USE;
void step_beam_close(struct step_beam *beam);

/* What generate() takes. */
const struct step_strategy *step_beam_strategy(const struct step_beam *beam);

#endif
