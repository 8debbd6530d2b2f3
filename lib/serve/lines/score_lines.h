/* Scores texts, lines of JSON: each gets a result line with log-probabilities and perplexity. */
#ifndef BMC_SCORE_LINES_H
#define BMC_SCORE_LINES_H

#include "base/json.h"
#include "decode/score.h"
#include "serve/lines/lines.h"
#include "serve/ordered_results.h"

struct score_lines {
    const struct model *model;
    struct session *session;
    size_t stride;      /* of context windows, as in score_texts() */
    bool parse_special; /* parse special tokens spelled in texts */
    bool lenient;       /* ignore unknown JSON fields */
    bool logprobs;      /* add the log-probability of every token to results */
    struct lines *lines;
    struct results *results;
    void (*progress)(void *arg); /* called after every result */
    void *arg;
    /* Set by score_lines(): */
    uint64_t n_lines, n_failed;
};

/* Scores all lines of the input. If the run fails, lines in flight get a result with the reason. */
int score_lines(struct score_lines *job, struct score_stats *stats, struct err *err) MUST_USE;

/* Adds the fields "tokens", "mean_logprob" and "perplexity" to an object. A perplexity that
 * overflows is null, as JSON has no infinity, or "inf" with `as_text`. */
int score_put(json_t *object, size_t tokens, double sum_logprob, bool as_text,
              struct err *err) MUST_USE;

#endif
