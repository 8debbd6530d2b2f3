/* Replay as a decoding strategy: draws answers that are known again, at the speed of prefill. */
#pragma once

#include "decode/session.h"
#include "decode/step.h"

struct step_replay;

/* Opens the strategy for requests that all have `expected` tokens. Each pass takes as many of them as a prefill
 * chunk holds; each token is then drawn as plain decoding draws it. A request ends as it does there, or, with
 * FINISHED_CANCELLED, after the first token drawn that is another one, or that follows the expected ones. */
int step_replay_open(struct step_replay **replay, const struct session *session,
                     struct err *err) MUST_USE;
void step_replay_close(struct step_replay *replay); /* NULL is accepted */

/* The strategy to pass to generate(). */
const struct step_strategy *step_replay_strategy(const struct step_replay *replay);
