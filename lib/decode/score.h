/* Log-probabilities of a given text. */
#ifndef BMC_SCORE_H
#define BMC_SCORE_H

#include <signal.h>

#include "decode/session.h"

/* Called for every token in order; `logprob` is NaN for the first one, which has no predecessor. */
typedef int score_token(void *arg, size_t pos, uint32_t id, double logprob, struct err *err);

struct score_stats {
    size_t tokens;      /* that have a log-probability */
    double sum_logprob; /* natural logarithm */
    size_t prefill_tokens;
    double prefill_ms;
};

/* Scores `n` ids with sequence 0 of the session. A text longer than the context is taken in windows
 * that overlap by half, so that every token but the first has a predecessor, and all but those of the
 * first window have at least half a context before them. */
int score_ids(struct session *session, const uint32_t *id, size_t n, score_token *token, void *arg,
              const volatile sig_atomic_t *interrupted, struct score_stats *stats,
              struct err *err) MUST_USE;

#endif
