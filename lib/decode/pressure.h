/* Reactions to memory pressure, between steps: heads are offloaded, sequences are converted to a smaller type, requests
 * wait. A sequence that was suspended is computed again, so that only conversions change results; these are logged, and a
 * replay of the log gives the same hash. */
#pragma once

#include "base/mem.h"
#include "decode/session.h"
#include "decode/step.h"

struct pressure;

struct pressure_options {
    /* "offload,q8,refuse", those wanted in the order wanted; NULL: memory is not watched */
    const char *steps;
    /* file with the bytes that the cache may have, in place of the system's memory; NULL: none */
    const char *limit;
    const char *log;    /* file to write; NULL: none */
    const char *replay; /* log whose conversions are repeated, instead of `steps`; NULL: none */
};

/* Opens files, too; the options are borrowed. On error *pressure is NULL. */
int pressure_open(struct pressure **pressure, const struct pressure_options *options,
                  struct err *err) MUST_USE;
/* Completes the log. */
int pressure_end(struct pressure *pressure, struct err *err) MUST_USE;
void pressure_close(struct pressure *pressure); /* NULL is accepted */

/* Conversions of the log to be replayed; 0 also without one. */
size_t pressure_to_replay(const struct pressure *pressure);

/* Drops the steps that the session's cache or the strategy (NULL: plain decoding) has no means for, and adds a line to `notes` for each; prepares the others.
 * Fails if the log to be replayed has conversions that are not possible. Its session_options name it. */
int pressure_bind(struct pressure *pressure, struct session *session,
                  const struct step_strategy *strategy, struct buf *notes, struct err *err) MUST_USE;
