/* Turns requests into the choices to generate. */
#pragma once

#include "serve/line_queue.h"

/* line_queue.prepare() where requests are served. Applies settings: the run's, overridden by a resumed sequence's,
 * then by the request's; makes the prompt, and the choices. */
int request_line_prepare(struct line_queue *queue, struct request_line *line,
                         const struct serve_input *input, struct err *err) MUST_USE;
