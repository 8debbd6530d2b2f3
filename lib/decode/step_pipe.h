/* Plain steps of a model that is split by layers: several groups of sequences are under way at a time, so that each rank has one
 * to compute. */
#ifndef BMC_STEP_PIPE_H
#define BMC_STEP_PIPE_H

#include "decode/session.h"
#include "decode/step.h"

struct step_pipe;

/* At most `groups` of them; sequences keep their group. The session must be one that session_flies(). */
int step_pipe_open(struct step_pipe **pipe, const struct session *session, size_t groups,
                   struct err *err) MUST_USE;
void step_pipe_close(struct step_pipe *pipe); /* NULL is accepted */

/* What generate() takes. */
const struct step_strategy *step_pipe_strategy(const struct step_pipe *pipe);

#endif
