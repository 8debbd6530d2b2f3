/* Scores texts, lines of JSON: each gets a result line with log-probabilities and perplexity. */
#ifndef BMC_SCORE_LINES_H
#define BMC_SCORE_LINES_H

#include "decode/score.h"
#include "serve/lines/text_line.h"

struct score_lines {
    struct text_lines texts; /* with logprobs: results have the log-probability of every token */
    struct session *session;
    size_t stride;               /* of context windows, as in score_texts() */
    void (*progress)(void *arg); /* called after every result */
    void *arg;
};

/* Scores all lines of the input. If the run fails, lines in flight get a result with the reason. */
int score_lines(struct score_lines *job, struct score_stats *stats, struct err *err) MUST_USE;

/* Adds the fields "tokens", "mean_logprob" and "perplexity" to an object. A perplexity that
 * overflows is null, as JSON has no infinity, or "inf" with `as_text`. */
int score_put(json_t *object, size_t tokens, double sum_logprob, bool as_text,
              struct err *err) MUST_USE;

#endif
