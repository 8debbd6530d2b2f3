/* Log-probabilities of given texts. */
#ifndef BMC_SCORE_H
#define BMC_SCORE_H

#include <signal.h>

#include "decode/gen_types.h"

/* A text to score. The caller owns the ids; they stay until the result was taken. */
struct score_text {
    const uint32_t *id;
    size_t n;
    void *user;
};

/* What came out; `text` and `error` are valid during the callback. */
struct score_result {
    const struct score_text *text;
    size_t tokens;      /* that have a log-probability */
    double sum_logprob; /* natural logarithm, added in the order of the text */
    const char *error;  /* why it ended early, or NULL */
};

/* Called for every token of a text in order; `logprob` is NaN for the first one, which has no predecessor. */
typedef int score_token(void *arg, const struct score_text *text, size_t pos, double logprob,
                        struct err *err);

struct score_callbacks {
    /* The next text, or GEN_END, or GEN_LATER, as gen_callbacks.next() gives requests. */
    int (*next)(void *arg, bool wait, struct score_text *text, struct err *err);
    score_token *token;
    int (*done)(void *arg, const struct score_result *result, struct err *err);
    void *arg;
};

/* Of a run. */
struct score_stats {
    size_t texts, tokens;
    double sum_logprob;
    size_t prefill_tokens;
    double prefill_ms;
};

/* NaN without tokens; infinity where the perplexity is beyond the numbers that a double holds. */
double score_mean(size_t tokens, double sum_logprob);
double score_perplexity(size_t tokens, double sum_logprob);

/* Scores texts, as many at a time as the session's batch holds.
 *
 * A text that is longer than the context is taken in windows of a context's length, each of which begins `stride` tokens
 * after the one before (0: half the context). A token's log-probability is that of the first window that predicts it: it
 * has all tokens before it in that window as predecessors. stride <= context, so that each token but the text's first has
 * one.
 *
 * Runs until there are no more texts, or *interrupted is not 0: then texts under way end with what they have. */
int score_texts(struct session *session, size_t stride, const struct score_callbacks *callbacks,
                const volatile sig_atomic_t *interrupted, struct score_stats *stats,
                struct err *err) MUST_USE;

/* The same for one text, whose faults are errors. */
int score_ids(struct session *session, size_t stride, const uint32_t *id, size_t n, score_token *token,
              void *arg, const volatile sig_atomic_t *interrupted, struct score_stats *stats,
              struct err *err) MUST_USE;

#endif
