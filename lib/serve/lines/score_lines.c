/* Scores texts that are read as lines of JSON. */
#include "serve/lines/score_lines.h"

#include <math.h>
#include <stdio.h>

#include "report/table.h"
#include "serve/result.h"
#include "serve/lines/text_line.h"

struct score_run {
    struct score_lines *job;
    struct text_line *first;
};

static struct text_line *new_line(struct score_run *run, struct err *err)
{
    struct text_line *line = text_line_add(&run->first, run->job->n_lines, err);
    if (line && run->job->logprobs && !(line->logprobs = json_array())) {
        text_line_free(line);
        err_set(err, "out of memory for a line");
        return NULL;
    }
    run->job->n_lines += line != NULL;
    return line;
}

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
static int finish_line(struct score_run *run, struct text_line *line, const struct score_result *result,
                       struct err *err)
{
    json_t *object = json_object();
    struct buf text = {0};
    int rc = put_members(object, line, result, err);
    if (rc == 0)
        rc = text_line_format(line, object, &text, err);
    json_decref(object);
    if (rc < 0) {
        buf_release(&text);
        return -1;
    }
    run->job->n_failed += result->error != NULL;
    rc = results_put(run->job->results, line->number, &text, err);
    text_line_free(line);
    return rc;
}

/* Reads the next line to score; invalid lines get an error result at once. */
static int next(void *arg, bool wait, struct score_text *text, struct err *err)
{
    struct score_run *run = arg;
    const char *bytes;
    size_t len;
    for (;;) {
        const int got = lines_next(run->job->lines, wait, &bytes, &len, err);
        if (got != GEN_REQUEST)
            return got;
        struct err why;
        if (results_expect(run->job->results, err) < 0)
            return -1;
        struct text_line *line = new_line(run, err);
        if (!line)
            return -1;
        const struct text_line_options options = {run->job->model, run->job->parse_special,
                                                  run->job->lenient};
        const int rc = text_line_parse(&options, bytes, len, &line->root, &line->ids, &why);
        if (rc == 0) {
            *text = (struct score_text){line->ids.id, line->ids.len, line};
            return GEN_REQUEST;
        }
        const struct score_result bad = {.error = why.text};
        if (finish_line(run, line, &bad, err) < 0)
            return -1;
    }
}

static int add_token(void *arg, const struct score_text *text, size_t pos, double logprob,
                     struct err *err)
{
    const struct score_run *run = arg;
    struct text_line *line = text->user;
    struct buf piece = {0};
    if (!line->logprobs)
        return 0;
    int rc = tokenizer_piece_printable(run->job->model->tok, text->id[pos], &piece, err);
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
    struct score_run *run = arg;
    const int rc = finish_line(run, result->text->user, result, err);
    if (rc == 0)
        run->job->progress(run->job->arg);
    return rc;
}

/* Writes a failure result for every line in flight; ignores further errors. */
static void fail_lines(struct score_run *run, const char *why)
{
    struct err ignored;
    char text[sizeof ignored.text + 32];
    const struct score_result ended = {.error = text};
    int rc = 0;
    snprintf(text, sizeof text, "the run ended: %s", why);
    for (struct text_line *line = run->first, *after; line; line = after) {
        after = line->next;
        json_decref(line->logprobs);
        line->logprobs = NULL;
        rc |= finish_line(run, line, &ended, &ignored);
    }
    rc |= results_end(run->job->results, &ignored);
    (void)rc;
}

int score_lines(struct score_lines *job, struct score_stats *stats, struct err *err)
{
    struct score_run run = {.job = job};
    const struct score_callbacks callbacks = {next, add_token, done, &run};
    const int rc =
        score_texts(job->session, job->stride, &callbacks, job->lines->source.interrupted, stats, err);
    if (rc < 0)
        fail_lines(&run, err->text);
    while (run.first)
        text_line_free(run.first);
    return rc;
}
