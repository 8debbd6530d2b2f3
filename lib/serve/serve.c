/* Serves requests read as lines of JSON. */
#include "serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/lines/lines.h"
#include "serve/result.h"

struct request_line {
    struct request_line *next, **link;
    uint64_t number;
    struct request request;
    struct constraint *constraint; /* the request's own, or NULL */
    struct constraint_cache *constraints;
    struct dry_breakers breakers; /* the request's own */
    char *id;                     /* the request's id as JSON text, or NULL */
    struct ids ids;               /* token ids: prompt, then generated */
    bool queued;                  /* read ahead, not in flight yet */
    volatile sig_atomic_t cancelled;
};

enum { MOST_QUEUED = 64 }; /* requests that are read ahead, so that requests to cancel are found */

struct jsonl_job {
    const struct serve *serve;
    const struct jsonl_io *io;
    struct request_line *lines; /* requests in flight or queued */
    size_t n_queued;
};

static struct request_line *new_line(struct jsonl_job *job)
{
    struct request_line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->next = job->lines;
    line->link = &job->lines;
    if (line->next)
        line->next->link = &line->next;
    job->lines = line;
    return line;
}

static void line_free(struct request_line *line)
{
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    if (line->constraint)
        constraint_cache_put(line->constraints, line->constraint);
    dry_breakers_release(&line->breakers);
    request_close(&line->request);
    ids_release(&line->ids);
    free(line->id);
    free(line);
}

/* Writes the result of a line that failed before its first token. */
static int put_failure(struct jsonl_job *job, struct request_line *line, const char *why,
                       struct err *err)
{
    const struct jsonl_result failed = {.number = line->number, .failed = true};
    struct buf text = {0};
    if (job->io->take) {
        const int taken = job->io->take(job->io->arg, line->number, NULL, why, err);
        line_free(line);
        return taken;
    }
    int rc = failure_line(line->id, line->number, why, &text, err);
    if (rc == 0)
        rc = job->io->put(job->io->arg, &failed, &text, err);
    line_free(line);
    return rc;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    struct request_line *line = result->request->user;
    struct buf text = {0};
    struct err why;
    if (result->finish == FINISHED_ERROR && !result->n_ids)
        return put_failure(job, line, result->error, err);
    if (job->io->take) {
        const int taken = job->io->take(job->io->arg, line->number, result, result->error, err);
        line_free(line);
        return taken;
    }
    const struct logprob_form form = {line->request.openai_logprobs, line->request.top_logprobs};
    if (result_line(job->serve->model->tok, line->id, result, form, &text, &why) < 0)
        return put_failure(job, line, why.text, err);
    const struct jsonl_result told = {line->number, result->finish == FINISHED_ERROR,
                                      result->logits_hash};
    const int rc = job->io->put(job->io->arg, &told, &text, err);
    line_free(line);
    return rc;
}

/* Default settings: under --chat and for messages those of the model. */
static const struct sampler_options *sampling_defaults(const struct serve *serve,
                                                       const struct request *request)
{
    const struct serve_options *o = &serve->options;
    return o->chat || json_object_get(request->root, "messages") ? &o->chat_defaults : &o->defaults;
}

/* Settings of a new sequence. Sequence breakers of DRY are the run's. */
static struct sampler_options new_sampling(const struct serve *serve, const struct request *request)
{
    const struct serve_options *o = &serve->options;
    struct sampler_options s = resume_sampling(&o->given, sampling_defaults(serve, request), NULL, 0);
    s.dry_breaker = o->sampling.dry_breaker;
    return s;
}

/* Makes the request resume a sequence of the snapshot. Found by the request's own id, the sequence
 * continues its random number stream; otherwise, as several requests may resume one sequence, it
 * gets the stream of the request's input line. */
static int read_origin(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    const struct serve *serve = job->serve;
    const struct snapshot *snapshot = serve->snapshot;
    const struct given_settings *given = &serve->options.given;
    struct gen_request *request = &line->request.gen;
    const uint64_t stream = request->stream;
    const bool named = line->request.from != NULL;
    char *from = named ? request_format_id(line->request.from, err) : NULL;
    if (named && !from)
        return -1;
    const size_t index = resume_find(snapshot, from, line->id, err);
    free(from);
    if (index == SIZE_MAX ||
        resume_sequence(snapshot, index, resume_seed(given, serve->options.seed, snapshot, index),
                        request, err) < 0)
        return -1;
    const bool own =
        !named && (line->id ? snapshot_seq(snapshot, index)->id_bytes != 0 : snapshot->file.n_seqs > 1);
    request->stream = own ? request->stream : stream;
    line->request.sampling =
        resume_sampling(given, sampling_defaults(serve, &line->request), snapshot, index);
    return 0;
}

struct conversation serve_conversation(const struct request *request)
{
    return (struct conversation){
        .messages = request->messages,
        .tools = request->tools,
        .documents = request->documents,
        .variables = request->template_variables,
        .no_answer = request->add_generation_prompt && !json_is_true(request->add_generation_prompt),
    };
}

static int add_conversation(const struct jsonl_job *job, struct request_line *line,
                            const struct conversation *conversation, struct err *err)
{
    const struct serve *serve = job->serve;
    const bool special = request_parses_special(&line->request, serve->options.parse_special_in_chat);
    const unsigned flags = (serve->snapshot ? CHAT_CONTINUES : 0) | (special ? CHAT_PARSES_SPECIAL : 0);
    return chat_prompts_add(serve->chat, conversation, flags, &line->ids, NULL, err);
}

static int read_messages(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    const struct conversation conversation = serve_conversation(&line->request);
    if (chat_prompts_open(job->serve->chat, err) < 0)
        return -1;
    chat_prompts_set_ends(job->serve->chat, &line->request.gen);
    line->request.gen.hold_partial_utf8 = false; /* what follows an answer begins anew */
    return add_conversation(job, line, &conversation, err);
}

/* A prompt that is what a user says. */
static int read_user_message(const struct jsonl_job *job, struct request_line *line, const char *text,
                             size_t len, struct err *err)
{
    struct conversation conversation = serve_conversation(&line->request);
    json_t *messages = chat_user_message(text, len, err);
    conversation.messages = messages;
    const int rc = messages ? add_conversation(job, line, &conversation, err) : -1;
    json_decref(messages);
    return rc;
}

static int read_text(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    const struct serve *serve = job->serve;
    const char *text = json_string_value(line->request.text);
    const size_t len = json_string_length(line->request.text);
    if (serve->options.chat)
        return read_user_message(job, line, text, len, err);
    return serve_encode(serve->model, text, len, !serve->snapshot,
                        request_parses_special(&line->request, serve->options.parse_special),
                        &line->ids, err);
}

static int read_prompt(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    const struct request *request = &line->request;
    const bool resumes = job->serve->snapshot != NULL;
    const int prompts = (request->text != NULL) + (request->ids != NULL) + (request->messages != NULL);
    if (!resumes && request->from)
        return err_set(err, "\"from\" names a sequence of a snapshot: give one with --load-kv");
    if (prompts > 1 || (!prompts && !resumes))
        return err_set(err, "%s one of \"prompt\", \"ids\" and \"messages\" is expected",
                       resumes ? "at most" : "exactly");
    if (request->messages)
        return read_messages(job, line, err);
    if (request->text)
        return read_text(job, line, err);
    return request_ids(request, &line->ids, err);
}

/* Compiles the request's own constraint, if any. */
static int read_constraint(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    const struct request *request = &line->request;
    if (!request->constraint_given)
        return 0;
    line->constraints = job->serve->constraints;
    if (request->constraint != CONSTRAINT_NONE &&
        constraint_cache_get(line->constraints, request->constraint,
                             buf_text(&request->constraint_text), request->constraint_text.len,
                             &line->constraint, err) < 0)
        return -1;
    line->request.gen.constraint = line->constraint;
    return 0;
}

/* Finds the sequence breakers of DRY, the request's own or the run's. */
static int read_breakers(const struct jsonl_job *job, struct request_line *line, struct err *err)
{
    struct request *request = &line->request;
    struct dry_breakers *breakers = job->serve->breakers;
    if (!dry_is_on(&request->sampling) || !breakers)
        return 0;
    if (request->breakers_given) {
        line->breakers = *breakers;
        line->breakers.token = NULL;
        line->breakers.text = request->breaker;
        line->breakers.n_texts = request->n_breakers;
        breakers = &line->breakers;
    }
    const int rc = dry_breakers_find(breakers, err);
    request->sampling.dry_breaker = breakers->token;
    return rc;
}

static int check_cancel(const struct jsonl_job *job, const struct request *request, struct err *err)
{
    const size_t known = 1 + (request->id != NULL);
    if (!job->serve->options.lenient && json_object_size(request->root) != known)
        return err_set(err, "\"cancel\" goes with no other member than \"id\"");
    return job->io->alone
               ? 0
               : err_set(err, "\"cancel\" needs a single process that reads the lines: under data "
                              "parallelism other ranks serve the request, and in the library (bmc.h) "
                              "a callback's \"cancelled\" stops it");
}

/* Parses a line into a request. Applies settings: the run's, overridden by a resumed sequence's,
 * then by the request's. */
static int read_request(const struct jsonl_job *job, struct request_line *line,
                        const struct jsonl_line *read, struct err *err)
{
    const struct serve *serve = job->serve;
    struct request *request = &line->request;
    if (lines_check(read->text, err) < 0)
        return -1;
    const int rc = request_open(request, read->text, read->len, serve->options.lenient, err);
    if (request->id && !(line->id = request_format_id(request->id, err)))
        return -1;
    if (rc < 0)
        return -1;
    if (request->cancel)
        return check_cancel(job, request, err);
    request->gen = serve_request(serve, &line->ids);
    request->gen.line = request->gen.stream = line->number;
    request->gen.user = line;
    request->gen.cancelled = &line->cancelled;
    request->sampling = new_sampling(serve, request);
    if ((serve->snapshot && read_origin(job, line, err) < 0) || request_apply(request, err) < 0 ||
        read_constraint(job, line, err) < 0 || read_breakers(job, line, err) < 0 ||
        read_prompt(job, line, err) < 0)
        return -1;
    return 0;
}

/* Ends the requests that have the id of a request to cancel; writes how many there were. */
static int cancel(struct jsonl_job *job, struct request_line *by, struct err *err)
{
    const struct jsonl_result told = {.number = by->number};
    struct buf text = {0};
    size_t n = 0;
    char *id = request_format_id(by->request.cancel, err);
    int rc = id ? 0 : -1;
    for (struct request_line *line = job->lines; line && id; line = line->next)
        if (line != by && line->id && strcmp(line->id, id) == 0) {
            line->cancelled = 1;
            n++;
        }
    free(id);
    if (rc == 0)
        rc = result_cancelled(by->id, n, &text, err);
    if (rc == 0)
        rc = job->io->put(job->io->arg, &told, &text, err);
    line_free(by);
    return rc;
}

/* Reads the next request. Invalid ones get an error result at once; those that cancel others do so. */
static int read_next(struct jsonl_job *job, bool wait, struct request_line **request, struct err *err)
{
    struct jsonl_line read;
    for (;;) {
        const int got = job->io->next(job->io->arg, wait, &read, err);
        if (got != GEN_REQUEST)
            return got;
        struct err why;
        struct request_line *line = new_line(job);
        if (!line)
            return err_set(err, "out of memory for a request");
        line->number = read.number;
        const int rc = read_request(job, line, &read, &why);
        if (rc == 0 && !line->request.cancel) {
            *request = line;
            return GEN_REQUEST;
        }
        if ((rc == 0 ? cancel(job, line, err) : put_failure(job, line, why.text, err)) < 0)
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

static int next(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct jsonl_job *job = arg;
    struct request_line *line = first_queued(job);
    const int got = line ? GEN_REQUEST : read_next(job, wait, &line, err);
    if (got != GEN_REQUEST)
        return got;
    job->n_queued -= line->queued;
    line->queued = false;
    *request = &line->request.gen;
    return GEN_REQUEST;
}

/* Reads requests that have arrived, so that those that cancel others need no free slot. */
static int read_ahead(struct jsonl_job *job, struct err *err)
{
    while (job->n_queued < MOST_QUEUED) {
        struct request_line *line = NULL;
        const int got = read_next(job, false, &line, err);
        if (got != GEN_REQUEST)
            return got < 0 ? -1 : 0;
        line->queued = true;
        job->n_queued++;
    }
    return 0;
}

static int progress(void *arg, const struct gen_request *request, const char *text, size_t len,
                    const uint32_t *ids, size_t n_ids, struct err *err)
{
    struct jsonl_job *job = arg;
    struct request_line *line = request->user;
    struct buf event = {0};
    if (job->io->progress) {
        const int rc = job->io->progress(job->io->arg, line->number, text, len, ids, n_ids, err);
        line->cancelled = line->cancelled || rc > 0;
        return rc < 0 ? -1 : 0;
    }
    if (line->request.stream && len &&
        (result_event(line->id, text, len, &event, err) < 0 ||
         job->io->event(job->io->arg, &event, err) < 0))
        return -1;
    return job->io->alone ? read_ahead(job, err) : 0;
}

static void prefill(void *arg, size_t tokens, size_t total)
{
    const struct jsonl_io *io = ((struct jsonl_job *)arg)->io;
    io->prefill(io->arg, tokens, total);
}

static int save(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    const struct request_line *line = result->request->user;
    return job->serve->save(job->serve->save_arg, seq, result, line->id, err);
}

/* Writes a failure result for every request in flight; ignores further errors. */
static void fail_lines(struct jsonl_job *job, const char *why)
{
    struct err ignored;
    char text[sizeof ignored.text + 32];
    snprintf(text, sizeof text, "the run ended: %s", why);
    while (job->lines)
        if (put_failure(job, job->lines, text, &ignored) < 0)
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
        fail_lines(&job, err->text);
    while (rc == 0 && job.lines) /* read ahead before an interrupt */
        rc = put_failure(&job, job.lines, GEN_INTERRUPTED, err);
    while (job.lines)
        line_free(job.lines);
    return rc;
}

struct gen_request serve_request(const struct serve *serve, struct ids *ids)
{
    const struct serve_options *o = &serve->options;
    struct gen_request request = {
        .ids = ids,
        .seed = o->seed,
        .n = o->n,
        .stop = o->stop,
        .n_stops = o->n_stops,
        .ignore_eos = o->ignore_eos,
        .hold_partial_utf8 = o->hold_partial_utf8,
        .logprobs = o->logprobs,
        .constraint = o->constraint,
    };
    if (o->chat)
        chat_prompts_set_ends(serve->chat, &request);
    return request;
}

int serve_encode(const struct model *model, const char *text, size_t len, bool with_template,
                 bool parse_special, struct ids *ids, struct err *err)
{
    return parse_special ? tokenizer_encode(model->tok, text, len, with_template, ids, err)
                         : tokenizer_encode_plain(model->tok, text, len, with_template, ids, err);
}
