/* Serves requests, lines of JSON, by continuous batching: each line gets one result line.
 *
 * Requests are read as slots of the batch become free, and some ahead. An invalid line affects only its own result;
 * if the run fails, all lines that were read still get a result. */
#ifndef BMC_SERVE_LINES_H
#define BMC_SERVE_LINES_H

#include "serve/serve.h"

/* Serves the requests read through `io` until the input ends. The session must be open. */
int serve_lines(const struct serve *serve, const struct serve_io *io, struct gen_stats *stats,
                struct err *err) MUST_USE;

#endif
