/* Texts that are read as lines of JSON, for jobs other than generation: objects with one of the fields
 * text, prompt and ids, and optionally id and parse_special. */
#ifndef BMC_TEXT_LINE_H
#define BMC_TEXT_LINE_H

#include "base/json.h"
#include "model/model.h"
#include "serve/request/foreign_members.h"
#include "serve/lines/lines.h"
#include "serve/ordered_results.h"
#include "text/ids.h"

struct text_line_options {
    const struct model *model;
    bool parse_special; /* parse special tokens spelled in texts, unless the line says otherwise */
    bool lenient;       /* ignore unknown fields */
};

/* A line whose result is not written yet, in a list of such lines. */
struct text_line {
    struct text_line *next, **link;
    uint64_t number; /* of the input line, from 0 */
    uint64_t index;  /* of the text, from 0: lines without one do not count */
    json_t *root;    /* NULL: plain text */
    struct ids ids;
    json_t *logprobs; /* of the tokens scored so far; NULL: not requested */
};

/* The input and the results of a job. */
struct text_lines {
    struct text_line_options options;
    bool logprobs; /* lines get a list for log-probabilities of tokens */
    struct lines *lines;
    struct results *results;
    struct text_line *first; /* lines in flight: read, and without a result */
    uint64_t n_lines, n_failed;
    foreign_members ignored; /* that lines had */
};

/* Reads the next line, which is then in flight; returns as lines_next(). If the line is invalid, *valid is
 * false and `why` says why. */
int text_lines_next(struct text_lines *texts, bool wait, struct text_line **line, bool *valid,
                    struct err *why, struct err *err) MUST_USE;

/* Writes `object`, which is released also after an error, behind the id of the line as its result. Frees the
 * line; after an error it stays in flight. */
int text_lines_finish(struct text_lines *texts, struct text_line *line, json_t *object, bool failed,
                      struct err *err) MUST_USE;

/* Removes the line from its list and frees it. */
void text_line_free(struct text_line *line);

#endif
