/* Serves requests read as lines of JSON. */
#include "serve/serve_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/lines/lines.h"
#include "serve/openai_answer.h"
#include "serve/request_line.h"
#include "serve/result.h"

struct jsonl_job {
    const struct serve *serve;
    const struct jsonl_io *io;
    struct request_line *lines; /* requests in flight or queued */
    size_t n_queued;
};

/* ---- results ---- */

/* Writes a result line, unless `rc` is an error, and ends the input line. */
static int put(struct jsonl_job *job, struct request_line *line, int rc, bool failed,
               const struct hash *logits_hash, struct buf *text, struct err *err)
{
    struct jsonl_result told = {.number = line->number, .failed = failed};
    if (logits_hash)
        told.logits_hash = *logits_hash;
    if (rc == 0)
        rc = job->io->put(job->io->arg, &told, text, err);
    request_line_free(line);
    return rc;
}

/* Writes the result of a line that failed before its first token. */
static int put_failure(struct jsonl_job *job, struct request_line *line, const struct err *why,
                       struct err *err)
{
    struct buf text = {0};
    if (job->io->take) {
        const struct jsonl_taken rest = {line->number, SIZE_MAX, line->n_choices};
        const int taken = job->io->take(job->io->arg, &rest, NULL, why, err);
        request_line_free(line);
        return taken;
    }
    const int rc = (line->request.batch ? openai_batch_failure : failure_line)(line->id, line->number,
                                                                               why, &text, err);
    return put(job, line, rc, true, NULL, &text, err);
}

/* Writes the result of a request of a batch, all of whose choices have ended well. */
static int put_batch(struct jsonl_job *job, struct request_line *line, const struct hash *logits_hash,
                     struct err *err)
{
    const char *model = json_string_value(json_object_get(line->request.root, "model"));
    const struct openai_answer answer = {.number = line->number,
                                         .id = line->id,
                                         .chat = line->request.is_chat,
                                         .model = model ? model : job->serve->model->path,
                                         .created = job->serve->created,
                                         .n_prompt = line->n_prompt,
                                         .n_generated = line->n_generated};
    struct buf text = {0};
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < line->n_choices && rc == 0; i++) {
        rc = json_push(list, line->choice[i].result, err);
        line->choice[i].result = NULL;
    }
    rc = openai_batch_line(&answer, openai_body(&answer, json_or_null(list, rc, err), err), &text, err);
    return put(job, line, rc, false, logits_hash, &text, err);
}

/* Writes the result of a request for several choices: a failure if none has a token. */
static int put_choices(struct jsonl_job *job, struct request_line *line, const struct hash *logits_hash,
                       struct err *err)
{
    const bool failed = line->n_failed > 0;
    json_t *list = json_array();
    struct buf text = {0};
    int rc = 0;
    for (size_t i = 0; i < line->n_choices && rc == 0; i++) {
        json_t *one = line->choice[i].result;
        line->choice[i].result = NULL;
        rc = json_push(list, one ? one : failed_choice(i, line->number, &line->failure, err), err);
    }
    rc = choices_line(line->id, line->number, json_or_null(list, rc, err),
                      failed ? &line->failure : NULL, &text, err);
    return put(job, line, rc, failed, logits_hash, &text, err);
}

/* Keeps the result of one of several choices, and writes those of all once the last one has ended. */
static int end_choice(struct jsonl_job *job, struct choice *choice, const struct gen_result *result,
                      struct logprob_form form, struct err *err)
{
    struct request_line *line = choice->line;
    const bool empty = result->finish == FINISHED_ERROR && !result->n_ids;
    if (result->finish == FINISHED_ERROR && !line->n_failed++)
        line->failure = *result->error;
    const struct tokenizer *tok = job->serve->model->tok;
    if (!empty &&
        !(choice->result = line->request.batch ? openai_choice(tok, line->request.is_chat,
                                                               choice->index, result, form, err)
                                               : result_choice(tok, choice->index, result, form, err)))
        return -1;
    line->n_prompt = result->n_prompt;
    line->n_generated += result->n_ids;
    if (++line->n_ended < line->n_choices)
        return 0;
    if (line->request.batch)
        return line->n_failed ? put_failure(job, line, &line->failure, err)
                              : put_batch(job, line, &result->logits_hash, err);
    for (size_t i = 0; i < line->n_choices; i++)
        if (line->choice[i].result)
            return put_choices(job, line, &result->logits_hash, err);
    return put_failure(job, line, &line->failure, err);
}

/* Passes a result to the caller as it is, and ends the line after the last one. */
static int take_choice(struct jsonl_job *job, const struct choice *choice,
                       const struct gen_result *result, struct err *err)
{
    struct request_line *line = choice->line;
    const struct jsonl_taken which = {line->number, choice->index, line->n_choices};
    const bool empty = result->finish == FINISHED_ERROR && !result->n_ids;
    const int taken = job->io->take(job->io->arg, &which, empty ? NULL : result, result->error, err);
    if (++line->n_ended == line->n_choices)
        request_line_free(line);
    return taken;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    struct choice *choice = result->request->user;
    struct request_line *line = choice->line;
    const struct logprob_form form = {line->request.openai_logprobs, line->request.top_logprobs};
    struct buf text = {0};
    struct err why;
    if (job->io->take)
        return take_choice(job, choice, result, err);
    if (line->n_choices > 1 || line->request.batch)
        return end_choice(job, choice, result, form, err);
    if (result->finish == FINISHED_ERROR && !result->n_ids)
        return put_failure(job, line, result->error, err);
    if (result_line(job->serve->model->tok, line->id, result, form, &text, &why) < 0)
        return put_failure(job, line, &why, err);
    return put(job, line, 0, result->finish == FINISHED_ERROR, &result->logits_hash, &text, err);
}

/* Ends a line of which no more will be generated. */
static int end_line(struct jsonl_job *job, struct request_line *line, const struct err *why,
                    struct err *err)
{
    if (!line->n_ended || job->io->take || line->request.batch)
        return put_failure(job, line, why, err);
    if (!line->n_failed++)
        line->failure = *why;
    return put_choices(job, line, NULL, err);
}

/* ---- requests ---- */

/* Marks the requests in flight or queued that have this id; returns how many were not marked before. */
static size_t mark_cancelled(struct jsonl_job *job, const struct request_line *by, const char *id)
{
    size_t n = 0;
    for (struct request_line *line = job->lines; line; line = line->next)
        if (line != by && !line->cancelled && line->id && strcmp(line->id, id) == 0) {
            line->cancelled = 1;
            n++;
        }
    return n;
}

/* Serves a request to cancel others: ends those, and writes how many there were. */
static int cancel(struct jsonl_job *job, struct request_line *by, struct err *err)
{
    struct buf text = {0};
    char *id = request_format_id(by->request.cancel, err);
    const int rc = id ? result_cancelled(by->id, mark_cancelled(job, by, id), &text, err) : -1;
    free(id);
    return put(job, by, rc, false, NULL, &text, err);
}

/* Reads the next request. Invalid ones get an error result at once; those that cancel others do so. */
static int read_next(struct jsonl_job *job, bool wait, struct request_line **request, struct err *err)
{
    struct jsonl_line read = {0};
    for (;;) {
        const int got = job->io->next(job->io->arg, wait, &read, err);
        if (got != GEN_REQUEST)
            return got;
        if (read.cancels) {
            mark_cancelled(job, NULL, read.text);
            continue;
        }
        struct err why;
        struct request_line *line = request_line_new(&job->lines);
        if (!line)
            return err_no_memory(err, "a request");
        line->number = read.number;
        const int rc = request_line_read(job->serve, job->io, line, &read, &why);
        if (rc == 0 && !line->request.cancel) {
            *request = line;
            return GEN_REQUEST;
        }
        if ((rc == 0 ? cancel(job, line, err) : put_failure(job, line, &why, err)) < 0)
            return -1;
    }
}

/* The queued request that was read first, NULL: there is none. */
static struct request_line *first_queued(const struct jsonl_job *job)
{
    struct request_line *first = NULL;
    for (struct request_line *line = job->lines; line && job->n_queued; line = line->next)
        if (line->queued && (!first || line->number < first->number))
            first = line;
    return first;
}

static void set_queued(struct jsonl_job *job, struct request_line *line, bool queued)
{
    job->n_queued += (size_t)queued - (size_t)line->queued;
    line->queued = queued;
}

static int next(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct jsonl_job *job = arg;
    struct request_line *line = first_queued(job);
    const int got = line ? GEN_REQUEST : read_next(job, wait, &line, err);
    if (got != GEN_REQUEST)
        return got;
    *request = &line->choice[line->n_started++].gen;
    set_queued(job, line, line->n_started < line->n_choices);
    return GEN_REQUEST;
}

/* Reads requests that have arrived, so that those that cancel others need no free slot. */
static int read_ahead(struct jsonl_job *job, struct err *err)
{
    while (job->n_queued < LINES_READ_AHEAD) {
        struct request_line *line = NULL;
        const int got = read_next(job, false, &line, err);
        if (got != GEN_REQUEST)
            return got < 0 ? -1 : 0;
        set_queued(job, line, true);
    }
    return 0;
}

/* ---- the run ---- */

static int progress(void *arg, const struct gen_request *request, const char *text, size_t len,
                    const uint32_t *ids, size_t n_ids, struct err *err)
{
    struct jsonl_job *job = arg;
    const struct choice *choice = request->user;
    struct request_line *line = choice->line;
    struct buf event = {0};
    if (job->io->progress) {
        const int rc =
            job->io->progress(job->io->arg, line->number, choice->index, text, len, ids, n_ids, err);
        line->cancelled = line->cancelled || rc > 0;
        return rc < 0 ? -1 : 0;
    }
    const size_t index = line->n_choices > 1 ? choice->index : SIZE_MAX;
    if (line->request.stream && len &&
        (result_event(line->id, index, text, len, &event, err) < 0 ||
         job->io->event(job->io->arg, &event, err) < 0))
        return -1;
    return job->io->can_cancel ? read_ahead(job, err) : 0;
}

static void prefill(void *arg, size_t tokens, size_t total)
{
    const struct jsonl_io *io = ((struct jsonl_job *)arg)->io;
    io->prefill(io->arg, tokens, total);
}

static int save(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    const struct choice *choice = result->request->user;
    return job->serve->save(job->serve->save_arg, seq, result, choice->line->id, err);
}

/* Writes a result for every request that has none; ignores further errors. */
static void fail_lines(struct jsonl_job *job, const struct err *failure)
{
    struct err ignored, why = *failure;
    err_prefix(&why, "the run ended");
    while (job->lines)
        if (end_line(job, job->lines, &why, &ignored) < 0)
            break;
}

int serve_lines(const struct serve *serve, const struct jsonl_io *io, struct gen_stats *stats,
                struct err *err)
{
    struct jsonl_job job = {.serve = serve, .io = io};
    const struct gen_callbacks callbacks = {
        next, progress, done, io->prefill ? prefill : NULL, serve->save ? save : NULL, &job};
    int rc = generate_cached(serve->session, &serve->options.sampling, serve->strategy, &callbacks,
                             serve->interrupted, serve->cached, stats, err);
    if (rc < 0)
        fail_lines(&job, err);
    while (rc == 0 && job.lines) /* read ahead before an interrupt */
        rc = end_line(&job, job.lines, &err_interrupted, err);
    while (job.lines)
        request_line_free(job.lines);
    return rc;
}
