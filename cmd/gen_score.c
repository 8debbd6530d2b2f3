/* bmc-gen --score: a text's log-probabilities, token by token, and what they come to. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "gen.h"
#include "model/observer.h"

struct score_job {
    struct gen *gen;
    enum table_format format;
    json_t *rows; /* collected, unless they are printed as they come */
    struct cli_progress progress;
};

/* ---- numbers ---- */

static json_t *number(double value, bool as_text)
{
    if (isfinite(value))
        return json_real(value);
    return as_text && isinf(value) ? json_string("inf") : json_null();
}

int gen_put_score(json_t *object, size_t tokens, double sum_logprob, bool as_text, struct err *err)
{
    const double mean = score_mean(tokens, sum_logprob),
                 perplexity = score_perplexity(tokens, sum_logprob);
    if (json_put(object, "tokens", json_integer((json_int_t)tokens), err) < 0 ||
        json_put(object, "mean_logprob", number(mean, as_text), err) < 0)
        return -1;
    return json_put(object, "perplexity", number(perplexity, as_text), err);
}

/* ---- rows ---- */

static int put_row(const struct score_job *job, json_t *row, uint32_t id, size_t pos, double logprob,
                   struct err *err)
{
    json_t *piece;
    if (json_put(row, "pos", json_integer((json_int_t)pos), err) < 0 ||
        json_put(row, "id", json_integer(id), err) < 0 || !(piece = gen_piece(job->gen, id, err)) ||
        json_put(row, "piece", piece, err) < 0)
        return -1;
    return json_put(row, "logprob", number(logprob, false), err);
}

static int put_line(const json_t *row, struct err *err)
{
    struct buf line = {0};
    int rc = json_write_line(row, &line, err);
    if (rc == 0)
        rc = gen_put(&line, err);
    buf_release(&line);
    return rc;
}

static int take_token(void *arg, const struct score_text *text, size_t pos, double logprob,
                      struct err *err)
{
    struct score_job *job = arg;
    cli_progress(&job->progress, pos + 1, text->n);
    if (job->gen->options->summary)
        return 0;
    json_t *row = json_object();
    int rc = row ? put_row(job, row, text->id[pos], pos, logprob, err)
                 : err_set(err, "out of memory for a row");
    if (rc == 0 && job->format == TABLE_JSONL)
        rc = put_line(row, err);
    else if (rc == 0)
        rc = json_push(job->rows, json_incref(row), err);
    json_decref(row);
    return rc;
}

/* ---- the whole ---- */

/* Below the rows of the text table. */
static int put_footer(const struct score_stats *score, struct buf *text, struct err *err)
{
    const double perplexity = score_perplexity(score->tokens, score->sum_logprob);
    int rc = buf_addf(text, err, "\ntokens      %zu\nperplexity  ", score->tokens);
    if (rc == 0)
        rc = isnan(perplexity)  ? buf_addf(text, err, "-\n")
             : perplexity < 1e6 ? buf_addf(text, err, "%.4f\n", perplexity)
                                : buf_addf(text, err, "%.6g\n", perplexity);
    if (rc == 0 && cli_interrupted)
        rc = buf_addf(text, err, "interrupted before the end of the text\n");
    return rc;
}

/* A summary is a table of one row, and for JSON an object without rows. */
static int put_summary(struct score_job *job, json_t *about, struct buf *text, struct err *err)
{
    if (job->format == TABLE_JSON)
        return table_write(NULL, about, job->format, text, err);
    if (json_push(job->rows, json_incref(about), err) < 0)
        return -1;
    return table_write(job->rows, NULL, job->format, text, err);
}

static int put_whole(struct score_job *job, const struct score_stats *score, json_t *about,
                     struct buf *text, struct err *err)
{
    const bool json = job->format == TABLE_JSON || job->format == TABLE_JSONL;
    if (gen_put_score(about, score->tokens, score->sum_logprob, !json, err) < 0 ||
        (cli_interrupted && json_put(about, "error", json_string(GEN_INTERRUPTED), err) < 0))
        return -1;
    if (job->gen->options->summary)
        return put_summary(job, about, text, err);
    if (job->format == TABLE_JSONL)
        return json_write_line(about, text, err);
    if (table_write(job->rows, about, job->format, text, err) < 0)
        return -1;
    return job->format == TABLE_TEXT ? put_footer(score, text, err) : 0;
}

static int print_whole(struct score_job *job, const struct score_stats *score, struct err *err)
{
    struct buf text = {0};
    json_t *about = json_object();
    int rc = about ? put_whole(job, score, about, &text, err)
                   : err_set(err, "out of memory for the perplexity");
    if (rc == 0)
        rc = gen_put(&text, err);
    buf_release(&text);
    json_decref(about);
    return rc;
}

/* Scores the text, watched by an observer whose sums are saved. */
static int score_watched(struct score_job *job, const struct ids *ids, struct err *err)
{
    struct gen *gen = job->gen;
    struct observer *observer = NULL;
    const char *path = gen->options->save_importance;
    if (path && observer_open(&observer, gen->model, err) < 0)
        return -1;
    if (observer)
        gemm_watch(gen->session.forward.gemm, observer_take, observer);
    int rc = score_ids(&gen->session, gen->options->stride, ids->id, ids->len, take_token, job,
                       &cli_interrupted, &gen->score, err);
    if (rc == 0 && observer && cli_interrupted)
        rc = err_set(err, "%s: not written, for the text was interrupted", path);
    else if (rc == 0 && observer)
        rc = observer_save(observer, path, ids->len, err);
    gemm_watch(gen->session.forward.gemm, NULL, NULL);
    observer_close(observer);
    return rc;
}

/* The text's ids scored, printed and reported. */
static int score_text(struct score_job *job, const struct ids *ids, struct err *err)
{
    struct gen *gen = job->gen;
    struct score_stats *score = &gen->score;
    if (gen_open_session(gen, 1, ids->len, err) < 0)
        return -1;
    cli_progress_begin(&job->progress, "text");
    job->progress.hidden |= gen->options->quiet;
    if (job->format == TABLE_JSONL && !gen->options->summary && isatty(STDOUT_FILENO))
        job->progress.hidden = true; /* the rows show it */
    cli_progress(&job->progress, 0, ids->len);
    const int rc = score_watched(job, ids, err);
    cli_progress_end(&job->progress);
    if (rc < 0 || print_whole(job, score, err) < 0)
        return -1;
    const struct gen_stats stats = {
        .sequences = 1, .prefill_tokens = score->prefill_tokens, .prefill_ms = score->prefill_ms};
    return gen_report(gen, &stats, err);
}

/* Where the text is from, in a sentence. */
static const char *source_name(const struct gen_options *o)
{
    return o->prompt ? "--prompt" : o->file && strcmp(o->file, "-") != 0 ? o->file : "standard input";
}

int gen_score(struct gen *gen, struct err *err)
{
    struct score_job job = {
        .gen = gen, .format = (enum table_format)gen->options->format, .rows = json_array()};
    struct buf text = {0};
    struct ids ids = {0};
    int rc = -1;
    gen_hint_batch(gen, 1);
    gen_hint_terminal(gen, "the text");
    if (!job.rows)
        err_set(err, "out of memory for rows");
    else if (gen_read_text(gen->options, true, &text, err) == 0) {
        rc = gen_encode(gen, buf_text(&text), text.len, true, !gen->options->no_parse_special, &ids,
                        err);
        rc = rc < 0 ? err_prefix(err, "%s", source_name(gen->options)) : score_text(&job, &ids, err);
    }
    json_decref(job.rows);
    buf_release(&text);
    ids_release(&ids);
    return rc;
}
