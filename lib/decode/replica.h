/* A replica: a rank other than 0, which executes rank 0's command stream (leader.h). */
#pragma once

#include "decode/session.h"

/* Executes commands until rank 0 ends the run. COMMAND_OPEN sets the sizes of the session;
 * `options` provides its other options. */
int replicate(const struct model *model, const struct session_options *options,
              struct err *err) MUST_USE;
