/* Plain decoding under pipeline parallelism: the batch is divided into micro-batches that are in
 * flight at the same time, so that every stage has work. */
#pragma once

#include "decode/session.h"
#include "decode/step.h"

struct step_pipe;

/* Opens the strategy with at most `groups` micro-batches, each of which always has the same slots.
 * session_is_async() must be true. */
int step_pipe_open(struct step_pipe **pipe, const struct session *session, size_t groups,
                   struct err *err) MUST_USE;
void step_pipe_close(struct step_pipe *pipe); /* NULL is accepted */

/* The strategy to pass to generate(). */
const struct step_strategy *step_pipe_strategy(const struct step_pipe *pipe);
