/* How far a configuration moves a model's next-token distributions: KL divergence from a reference, token by token of a
 * text, and statistics of it. */
#pragma once

#include "format/logits_file.h"
#include "prof/report.h"

/* A configuration: a model, and the options of a session of one sequence, whose context is the window. */
struct quality_side {
    const struct model *model;
    struct session_options options;
};

/* What is compared. */
struct quality_run {
    struct quality_side tested;
    const struct quality_side *reference; /* NULL: none but `saved` */
    /* The reference's logits, whose vocabulary, text and window are those of the run; NULL: none. */
    const struct logits_file *saved;
    const char *saved_name;     /* path, for errors */
    struct logits_writer *save; /* where the tested side's logits go; NULL: nowhere */
    /* [n - 1][vocab] logits of the reference, which a run sets, and further ones of the same text read if `logits_set`, instead of
     * running it again; NULL: none */
    float *logits;
    bool logits_set;
};

enum quality_which { QUALITY_REFERENCE, QUALITY_TESTED, QUALITY_SIDES };

/* A token of the text that both sides predict. */
struct quality_token {
    size_t position; /* in its window: the number of tokens before it */
    /* KL divergence of the tested distribution from the reference's, in nats; NaN, as the reference's logprob, without one */
    double kld;
    double logprob[QUALITY_SIDES];
    bool same_top; /* both have the same most probable token */
};

/* Of a text's tokens, or those at some positions. Without a reference, figures that need one are NaN. */
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
 * `token`, [n], of which *n_tokens are set. A text longer than the tested side's context, which the reference has, too, is cut
 * into windows of that length, each of which begins with the text's BOS. All vocabularies must have the same size.
 *
 * With saved logits of some tokens only, the others count as one: a lower bound of the divergence. */
int quality_measure(struct quality_token *token, size_t *n_tokens, const struct quality_run *what,
                    const uint32_t *id, size_t n, const struct report *report,
                    struct err *err) MUST_USE;

/* Compares two rows of logits, [vocab], and sets all of *token but its position; `next` is the token that follows in the text. */
void quality_compare(struct quality_token *token, const float *reference, const float *tested,
                     size_t vocab, uint32_t next);

/* Statistics of tokens at positions [first, end); of none: *quality has 0 tokens. */
int quality_summarize(struct quality *quality, const struct quality_token *token, size_t n,
                      size_t first, size_t end, struct err *err) MUST_USE;
