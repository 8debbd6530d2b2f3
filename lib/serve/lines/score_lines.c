/* Scores texts that are read as lines of JSON. */
#include "serve/lines/score_lines.h"

#include <math.h>
#include <stdio.h>

#include "report/table.h"
#include "serve/result.h"
#include "serve/lines/text_line.h"

static json_t *number(double value, bool as_text)
{
    if (isfinite(value))
        return json_real(value);
    return as_text && isinf(value) ? json_string("inf") : json_null();
}

int score_put(json_t *object, size_t tokens, double sum_logprob, bool as_text, struct err *err)
{
    const double mean = score_mean(tokens, sum_logprob),
                 perplexity = score_perplexity(tokens, sum_logprob);
    if (json_put(object, "tokens", json_integer((json_int_t)tokens), err) < 0 ||
        json_put(object, "mean_logprob", number(mean, as_text), err) < 0)
        return -1;
    return json_put(object, "perplexity", number(perplexity, as_text), err);
}

static int put_members(json_t *object, const struct text_line *line, const struct score_result *result,
                       struct err *err)
{
    if (score_put(object, result->tokens, result->sum_logprob, false, err) < 0 ||
        json_put(object, "sum_logprob", json_real(result->sum_logprob), err) < 0 ||
        json_put(object, "error", result->error ? line_error(line->number, result->error) : json_null(),
                 err) < 0)
        return -1;
    return line->logprobs ? json_put(object, "logprobs", json_incref(line->logprobs), err) : 0;
}

/* Writes the line's result and frees the line; if out of memory, the line stays in flight. */
static int finish(struct score_lines *job, struct text_line *line, const struct score_result *result,
                  struct err *err)
{
    json_t *object = json_object();
    if (put_members(object, line, result, err) == 0)
        return text_lines_finish(&job->texts, line, object, result->error != NULL, err);
    json_decref(object);
    return -1;
}

/* Reads the next line to score; invalid lines get an error result at once. */
static int next_text(void *arg, bool wait, struct score_text *text, struct err *err)
{
    struct score_lines *job = arg;
    struct text_line *line;
    struct err why;
    bool valid;
    for (;;) {
        const int got = text_lines_next(&job->texts, wait, &line, &valid, &why, err);
        if (got != GEN_REQUEST)
            return got;
        if (valid) {
            *text = (struct score_text){line->ids.id, line->ids.len, line};
            return GEN_REQUEST;
        }
        const struct score_result bad = {.error = &why};
        if (finish(job, line, &bad, err) < 0)
            return -1;
    }
}

static int add_token(void *arg, const struct score_text *text, size_t pos, double logprob,
                     struct err *err)
{
    const struct score_lines *job = arg;
    struct text_line *line = text->user;
    struct buf piece = {0};
    if (!line->logprobs)
        return 0;
    int rc = tokenizer_piece_printable(job->texts.options.model->tok, text->id[pos], &piece, err);
    if (rc == 0)
        rc = json_push(line->logprobs,
                       json_pack("{s:I, s:o, s:o}", "id", (json_int_t)text->id[pos], "piece",
                                 json_text(piece.data, piece.len), "logprob",
                                 pos ? json_real(logprob) : json_null()),
                       err);
    buf_release(&piece);
    return rc;
}

static int done(void *arg, const struct score_result *result, struct err *err)
{
    struct score_lines *job = arg;
    const int rc = finish(job, result->text->user, result, err);
    if (rc == 0)
        job->progress(job->arg);
    return rc;
}

/* Writes a failure result for every line in flight; ignores further errors. */
static void fail_lines(struct score_lines *job, const struct err *failure)
{
    struct err ignored, why = *failure;
    const struct score_result ended = {.error = &why};
    err_prefix(&why, "the run ended");
    for (struct text_line *line; (line = job->texts.first);) {
        json_decref(line->logprobs);
        line->logprobs = NULL;
        if (finish(job, line, &ended, &ignored) < 0 && job->texts.first == line)
            text_line_free(line);
    }
    (void)!results_end(job->texts.results, &ignored);
}

int score_lines(struct score_lines *job, struct score_stats *stats, struct err *err)
{
    const struct score_callbacks callbacks = {next_text, add_token, done, job};
    const int rc = score_texts(job->session, job->stride, &callbacks,
                               job->texts.lines->source.interrupted, stats, err);
    if (rc < 0)
        fail_lines(job, err);
    while (job->texts.first)
        text_line_free(job->texts.first);
    return rc;
}
