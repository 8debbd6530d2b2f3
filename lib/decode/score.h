/* Scoring: log-probabilities of given texts, and perplexity. */
#pragma once

#include "decode/text_batch.h"

/* The result of a text; `text` and `error` are valid during the callback. */
struct score_result {
    const struct text_ids *text;
    size_t tokens;           /* tokens with a log-probability */
    double sum_logprob;      /* natural logarithm, summed in token order */
    const struct err *error; /* why scoring ended early, or NULL */
};

/* Called for every token of a text in order; `logprob` is NaN for the first one. */
typedef int score_token(void *arg, const struct text_ids *text, size_t pos, double logprob,
                        struct err *err);

struct score_callbacks {
    text_next *next;
    score_token *token;
    int (*done)(void *arg, const struct score_result *result, struct err *err);
    void *arg;
};

/* Totals of a call of score_texts(). */
struct score_stats {
    size_t texts, tokens;
    double sum_logprob;
    size_t prefill_tokens;
    double prefill_ms;
};

/* Mean log-probability per token, and perplexity: exp(-mean), which may overflow to infinity. NaN
 * without tokens. */
double score_mean(size_t tokens, double sum_logprob);
double score_perplexity(size_t tokens, double sum_logprob);

/* Scores texts, as many at a time as the session's batch has sequences.
 *
 * A text longer than the context is scored in windows of a context's length, `stride` tokens apart
 * (0: half the context). The text's BOS takes the place of the first token in later windows. A token's
 * log-probability comes from the first window that predicts it, given all tokens before it in that
 * window. stride <= context, less BOS, so that every token but the first has one.
 *
 * Runs until there are no more texts, or until *interrupted is not 0: texts in flight then end with
 * the tokens scored so far. */
int score_texts(struct session *session, size_t stride, const struct score_callbacks *callbacks,
                const volatile sig_atomic_t *interrupted, struct score_stats *stats,
                struct err *err) MUST_USE;

/* Scores one text as score_texts() does; fails if that text's result is an error. */
int score_ids(struct session *session, size_t stride, const uint32_t *id, size_t n, score_token *token,
              void *arg, const volatile sig_atomic_t *interrupted, struct score_stats *stats,
              struct err *err) MUST_USE;
