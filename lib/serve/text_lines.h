/* Texts that are read line by line, plain or as JSON, and scored or embedded: each gets a result line.
 * Lines of JSON are objects with one of the fields text, prompt and ids, and optionally id and parse_special. */
#ifndef BMC_TEXT_LINES_H
#define BMC_TEXT_LINES_H

#include "base/json.h"
#include "decode/embed.h"
#include "decode/score.h"
#include "serve/foreign_members.h"
#include "serve/lines.h"
#include "text/ids.h"

/* A job: its input, its options and its results. */
struct text_lines {
    struct session *session;
    struct lines *lines;
    struct results *results;
    bool parse_special; /* parse special tokens spelled in texts, unless the line says otherwise */
    bool lenient;       /* ignore unknown fields */
    /* of scoring: */
    bool logprobs;               /* results have the log-probability of every token */
    size_t stride;               /* of context windows, as in score_texts() */
    void (*progress)(void *arg); /* called after every result */
    void *arg;
    /* of embedding: */
    enum embed_pooling pooling;
    bool normalize;
    /* Set by the job: */
    uint64_t n_lines, n_failed;
    foreign_members ignored; /* that lines had */
    struct text_line *first; /* lines that have been read, and have no result */
    /* the result of a line that fails, without its id */
    json_t *(*failure)(const struct text_lines *job, const struct text_line *line,
                       const struct err *why, struct err *err);
};

/* Score or embed all lines of the input. If the run fails, lines in flight get a result with the reason. */
int text_lines_score(struct text_lines *job, struct score_stats *stats, struct err *err) MUST_USE;
int text_lines_embed(struct text_lines *job, struct embed_stats *stats, struct err *err) MUST_USE;

/* Adds the fields "tokens", "mean_logprob" and "perplexity" to an object. A perplexity that
 * overflows is null, as JSON has no infinity, or "inf" with `as_text`. */
int score_put(json_t *object, size_t tokens, double sum_logprob, bool as_text,
              struct err *err) MUST_USE;

#endif
