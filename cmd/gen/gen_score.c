/* bmc-gen --score: log-probabilities of the tokens of a text, and its perplexity; --embed: embeddings of lines. */
#include <unistd.h>

#include "gen/gen.h"
#include "model/imatrix_collect.h"
#include "serve/text_lines.h"

struct score_job {
    struct gen *gen;
    enum table_format format;
    json_t *rows; /* the table's rows; stays empty with --format jsonl, which prints rows at once */
    struct cli_progress progress;
};

static int put_line(const json_t *row, struct err *err)
{
    AUTO(buf_release) struct buf line = {0};
    return json_write_line(row, &line, err) < 0 ? -1 : gen_put(&line, err);
}

static int add_token(void *arg, const struct text_ids *text, size_t pos, double logprob,
                     struct err *err)
{
    struct score_job *job = arg;
    cli_progress(&job->progress, pos + 1, text->n);
    if (job->gen->options->summary)
        return 0;
    const uint32_t id = text->id[pos];
    json_t *piece = gen_piece(job->gen, id, err), *row = NULL;
    if (piece)
        row = json_pack("{s:I, s:I, s:o, s:o}", "pos", (json_int_t)pos, "id", (json_int_t)id, "piece",
                        piece, "logprob", isfinite(logprob) ? json_real(logprob) : json_null());
    int rc = row ? 0 : piece ? err_no_memory(err, "a row") : -1;
    if (rc == 0 && job->format == TABLE_JSONL)
        rc = put_line(row, err);
    else if (rc == 0)
        rc = json_push(job->rows, json_incref(row), err);
    json_decref(row);
    return rc;
}

/* Formats the totals below the text table. */
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

/* Writes the totals: a table of one row, or in JSON an object without rows. */
static int put_summary(struct score_job *job, json_t *about, struct buf *text, struct err *err)
{
    if (job->format == TABLE_JSON)
        return table_write(NULL, about, job->format, text, err);
    if (json_push(job->rows, json_incref(about), err) < 0)
        return -1;
    return table_write(job->rows, NULL, job->format, text, err);
}

static int put_all(struct score_job *job, const struct score_stats *score, json_t *about,
                   struct buf *text, struct err *err)
{
    const bool json = job->format == TABLE_JSON || job->format == TABLE_JSONL;
    if (score_put(about, score->tokens, score->sum_logprob, !json, err) < 0 ||
        (cli_interrupted && json_put(about, "error", json_string(err_interrupted.text), err) < 0))
        return -1;
    if (job->gen->options->summary)
        return put_summary(job, about, text, err);
    if (job->format == TABLE_JSONL)
        return json_write_line(about, text, err);
    if (table_write(job->rows, about, job->format, text, err) < 0)
        return -1;
    return job->format == TABLE_TEXT ? put_footer(score, text, err) : 0;
}

static int print_all(struct score_job *job, const struct score_stats *score, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    AUTO(json_auto) json_t *about = json_object();
    int rc = about ? put_all(job, score, about, &text, err) : err_no_memory(err, "the perplexity");
    return rc < 0 ? -1 : gen_put(&text, err);
}

/* Scores the text, adds the inputs of its matrices to `collect` unless that is NULL, and prints the result. */
static int score_and_print(struct score_job *job, const struct ids *ids,
                           struct imatrix_collect *collect, struct err *err)
{
    struct gen *gen = job->gen;
    cli_progress_begin(&job->progress, "text");
    if (job->format == TABLE_JSONL && !gen->options->summary && isatty(STDOUT_FILENO))
        job->progress.hidden = true; /* the printed rows show progress */
    cli_progress(&job->progress, 0, ids->len);
    if (collect)
        forward_observe(session_pass(gen->session), imatrix_collect_add, collect);
    const int rc = score_ids(gen->session, gen->options->stride, ids->id, ids->len, add_token, job,
                             &cli_interrupted, &gen->score, err);
    forward_observe(session_pass(gen->session), NULL, NULL);
    cli_progress_end(&job->progress);
    return rc < 0 ? -1 : print_all(job, &gen->score, err);
}

/* With --save-imatrix also collects the importance matrix, and writes it after the result, which is not
 * lost if writing fails. */
static int score_collecting(struct score_job *job, const struct ids *ids, struct err *err)
{
    struct imatrix_collect *collect = NULL;
    const char *path = job->gen->options->save_imatrix;
    if (path && imatrix_collect_open(&collect, job->gen->model, err) < 0)
        return -1;
    int rc = score_and_print(job, ids, collect, err);
    if (rc == 0 && collect && cli_interrupted)
        rc = err_set(err, "%s: not written, as scoring was interrupted", path);
    else if (rc == 0 && collect)
        rc = imatrix_collect_save(collect, path, ids->len, err);
    imatrix_collect_close(collect);
    return rc;
}

static int score_text(struct score_job *job, const struct ids *ids, struct err *err)
{
    struct gen *gen = job->gen;
    struct gen_stats stats = {.sequences = 1};
    if (gen_open_session(gen, 1, ids->len, err) < 0)
        return -1;
    session_pass(gen->session)->work = &stats.prefill;
    if (score_collecting(job, ids, err) < 0)
        return -1;
    stats.prefill_tokens = gen->score.prefill_tokens;
    stats.prefill_ms = gen->score.prefill_ms;
    return gen_report(gen, &stats, err);
}

static const char *source_name(const struct gen_options *o)
{
    return o->prompt ? "--prompt" : o->file && strcmp(o->file, "-") != 0 ? o->file : "standard input";
}

int gen_score(struct gen *gen, struct err *err)
{
    struct score_job job = {
        .gen = gen, .format = (enum table_format)gen->options->format, .rows = json_array()};
    AUTO(buf_release) struct buf text = {0};
    AUTO(ids_release) struct ids ids = {0};
    int rc = -1;
    gen_hint_batch(gen, 1);
    gen_hint_terminal(gen, "the text");
    if (!job.rows)
        err_no_memory(err, "rows");
    else if (gen_read_text(gen->options, true, &text, err) == 0) {
        rc = serve_encode(gen->model, buf_text(&text), text.len, true, !gen->options->no_parse_special,
                          &ids, err);
        rc = rc < 0 ? err_prefix(err, "%s", source_name(gen->options)) : score_text(&job, &ids, err);
    }
    json_decref(job.rows);
    return rc;
}

/* ---- lines of texts ---- */

struct lines_progress {
    struct cli_progress bar;
    const struct lines_run *run;
};

static void show_progress(void *arg)
{
    struct lines_progress *progress = arg;
    const size_t total = progress->run->total_bytes;
    if (total)
        cli_progress(&progress->bar, size_min(progress->run->in.done_bytes, total), total);
}

/* Scores, embeds or reranks all lines of the input. */
static int run_text_lines(struct gen *gen, const struct lines_run *run, struct err *err)
{
    const struct gen_options *o = gen->options;
    enum embed_pooling pooling = o->pooling < 0 ? EMBED_MEAN : (enum embed_pooling)o->pooling;
    struct reranker reranker;
    AUTO(buf_release) struct buf prompt = {0};
    if ((o->embed && o->pooling < 0 && embed_declared(gen->model, &pooling, err) < 0) ||
        (o->embed && embed_prompt(gen->model, o->embed_prompt, &prompt, err) < 0) ||
        (o->rerank && reranker_init(&reranker, gen->model, err) < 0))
        return err_prefix(err, "%s", gen->model->name);
    if (o->rerank)
        gen_warn_of_reranker(gen, &reranker);
    struct lines_progress progress = {.run = run};
    const struct text_lines job = {
        .session = gen->session,
        .serve = o->embed ? &gen->serve : NULL,
        .io = &run->io,
        .interrupted = &cli_interrupted,
        .plain = !o->jsonl && !o->rerank,
        .reranker = o->rerank ? &reranker : NULL,
        .parse_special = !o->no_parse_special,
        .lenient = o->lenient,
        .logprobs = o->score && !o->summary,
        .stride = o->stride,
        .progress = show_progress,
        .arg = &progress,
        .pooling = pooling,
        .prompt = {prompt.data, prompt.len},
        .normalize = o->normalize || (!o->no_normalize && gen->model->config.pooled.normalize),
    };
    struct embed_stats embedded = {0};
    struct gen_stats stats = {0};
    session_pass(gen->session)->work = &stats.prefill;
    cli_progress_begin(&progress.bar, "texts");
    if (isatty(STDOUT_FILENO))
        progress.bar.hidden = true; /* the printed results show progress */
    const int rc = o->rerank  ? text_lines_rerank(&job, &embedded, err)
                   : o->embed ? text_lines_embed(&job, &embedded, err)
                              : text_lines_score(&job, &gen->score, err);
    cli_progress_end(&progress.bar);
    stats.sequences = embedded.texts + gen->score.texts;
    stats.prefill_tokens = embedded.tokens + gen->score.prefill_tokens;
    stats.prefill_ms = embedded.ms + gen->score.prefill_ms;
    return rc < 0 ? -1 : gen_report(gen, &stats, err);
}

int gen_text_lines(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    struct lines_run run;
    gen_hint_batch(gen, 0);
    gen_hint_terminal(gen, o->rerank  ? "queries with documents, a JSON object per line,"
                           : o->jsonl ? "texts, a JSON object per line,"
                                      : "texts, one per line,");
    int rc = gen_begin_lines(gen, &run, err);
    if (rc == 0)
        rc = gen_open_session(gen, o->batch ? o->batch : JSONL_BATCH, gen->model->config.context, err);
    if (rc == 0)
        rc = run_text_lines(gen, &run, err);
    gen_end_lines(&run, rc);
    return rc < 0 ? -1 : gen_verdict(gen, "lines", err);
}
