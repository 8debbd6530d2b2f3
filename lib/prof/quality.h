/* How far a configuration moves a model's next-token distributions: KL divergence from a reference, token by token of a
 * text, and statistics of it. */
#ifndef BMC_QUALITY_H
#define BMC_QUALITY_H

#include "prof/report.h"

/* A configuration: a model, and the options of a session of one sequence, whose context is the window. */
struct quality_side {
    const struct model *model;
    struct session_options options;
};

enum quality_which { QUALITY_REFERENCE, QUALITY_TESTED, QUALITY_SIDES };

/* A token of the text that both sides predict. */
struct quality_token {
    size_t position; /* in its window: the number of tokens before it */
    double kld;      /* KL divergence of the tested distribution from the reference's, in nats */
    double logprob[QUALITY_SIDES];
    bool same_top; /* both have the same most probable token */
};

/* Of a text's tokens, or those at some positions. */
struct quality {
    const char *positions;
    size_t tokens;
    double kld_mean, kld_median, kld_p99, kld_p999, kld_max;
    double same_top; /* share of tokens */
    double ppl, ppl_reference;
    /* ppl / ppl_reference, and its standard error, from the differences of log-probabilities */
    double ppl_ratio, ppl_ratio_se;
};

/* Runs the n tokens `id` through both sides, chunk by chunk in turns, so that memory does not grow with the text but by
 * `token`, [n], of which *n_tokens are set. A text longer than the sides' common context is cut into windows of that length,
 * each of which begins with the text's BOS. Both vocabularies must have the same size. */
int quality_measure(struct quality_token *token, size_t *n_tokens,
                    const struct quality_side side[QUALITY_SIDES], const uint32_t *id, size_t n,
                    const struct report *report, struct err *err) MUST_USE;

/* Statistics of tokens at positions [first, end); of none: *quality has 0 tokens. */
int quality_summarize(struct quality *quality, const struct quality_token *token, size_t n,
                      size_t first, size_t end, struct err *err) MUST_USE;

#endif
