/* Serves requests: from the queue to the generation loop, and from its results to those of the requests. */
#include "serve/openai.h"
#include "serve/request_line.h"
#include "serve/result.h"

/* ---- results ---- */

/* The choices that have ended; of others, the failure. */
static json_t *all_choices(const struct request_line *line, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < line->n_choices && rc == 0; i++) {
        json_t *one = line->choice[i].result;
        rc = json_push(
            list, one ? json_incref(one) : failed_choice(i, line->number, &line->failure, err), err);
    }
    return json_or_null(list, rc, err);
}

/* The result of a request of a batch, all of whose choices have ended well. */
static int batch_line(const struct line_queue *queue, const struct request_line *line, struct buf *text,
                      struct err *err)
{
    const char *model = json_string_value(json_object_get(line->request.root, "model"));
    const struct openai_answer answer = {.number = line->number,
                                         .id = line->id,
                                         .chat = line->request.is_chat,
                                         .model = model ? model : queue->serve->model->path,
                                         .created = queue->serve->created,
                                         .n_prompt = line->n_prompt,
                                         .n_generated = line->n_generated};
    return openai_batch_line(&answer, openai_body(&answer, all_choices(line, err), err), text, err);
}

/* Writes the result of a request whose choices have ended, but for those that will not: a failure if none has a
 * token, or one of a batch has failed. */
static int end_line(struct line_queue *queue, struct request_line *line, struct err *err)
{
    const struct err *failure = line->n_failed ? &line->failure : NULL;
    struct buf text = {0};
    bool any = false;
    for (size_t i = 0; i < line->n_choices; i++)
        any = any || line->choice[i].result;
    if (!any || (failure && line->batch))
        return line_queue_fail(queue, line, failure, err);
    const int rc = line->batch           ? batch_line(queue, line, &text, err)
                   : line->n_choices > 1 ? choices_line(line->id, line->number, all_choices(line, err),
                                                        failure, &text, err)
                                         : result_put_line(line->id, line->choice->result, &text, err);
    return line_queue_put(queue, line, rc, failure != NULL, &text, err);
}

/* Ends a request of which no more will be generated. */
static int cut_line(struct line_queue *queue, struct request_line *line, const struct err *why,
                    struct err *err)
{
    if (queue->io->take)
        return line_queue_fail(queue, line, why, err);
    if (!line->n_failed++)
        line->failure = *why;
    return end_line(queue, line, err);
}

/* Passes a result to the caller as it is. */
static int take_choice(struct line_queue *queue, const struct choice *choice,
                       const struct gen_result *result, struct err *err)
{
    const struct serve_choice which = {choice->line->number, choice->index, choice->line->n_choices};
    const bool empty = result->finish == FINISHED_ERROR && !result->n_ids;
    return queue->io->take(queue->io->arg, &which, empty ? NULL : result, result->error, err);
}

/* Keeps a result until all choices have ended. One that cannot be kept has failed. */
static void keep_choice(const struct line_queue *queue, struct choice *choice,
                        const struct gen_result *result)
{
    struct request_line *line = choice->line;
    const struct tokenizer *tok = queue->serve->model->tok;
    const struct logprob_form form = {line->request.openai_logprobs, line->request.top_logprobs};
    const size_t index = line->n_choices > 1 ? choice->index : SIZE_MAX;
    const struct err *error = result->error;
    struct err why;
    if (result->finish != FINISHED_ERROR || result->n_ids) {
        choice->result =
            line->batch ? openai_choice(tok, line->request.is_chat, choice->index, result, form, &why)
                        : result_choice(tok, index, result, form, &why);
        error = choice->result ? error : &why;
    }
    if (error && !line->n_failed++)
        line->failure = *error;
    line->n_prompt = result->n_prompt;
    line->n_generated += result->n_ids;
    line->logits_hash = result->logits_hash;
}

static int end_choice(void *arg, const struct gen_result *result, struct err *err)
{
    struct line_queue *queue = arg;
    struct choice *choice = result->request->user;
    struct request_line *line = choice->line;
    const bool takes = queue->io->take != NULL, last = ++line->n_ended == line->n_choices;
    int rc = 0;
    if (takes)
        rc = take_choice(queue, choice, result, err);
    else
        keep_choice(queue, choice, result);
    if (last && takes)
        line_queue_drop(queue, line);
    else if (last)
        rc = end_line(queue, line, err);
    return rc;
}

/* ---- callbacks of generate() ---- */

static int next_choice(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct line_queue *queue = arg;
    struct request_line *line = line_queue_first(queue);
    const int got = line ? GEN_REQUEST : line_queue_read(queue, wait, &line, err);
    if (got != GEN_REQUEST)
        return got;
    *request = &line->choice[line->n_started++].gen;
    line_queue_set_waiting(queue, line, line->n_started < line->n_choices);
    return GEN_REQUEST;
}

/* Reads requests that have arrived, so that those that cancel others need no free slot. */
static int read_ahead(struct line_queue *queue, struct err *err)
{
    while (queue->n_waiting < QUEUE_READ_AHEAD) {
        struct request_line *line = NULL;
        const int got = line_queue_read(queue, false, &line, err);
        if (got != GEN_REQUEST)
            return got < 0 ? -1 : 0;
        line_queue_set_waiting(queue, line, true);
    }
    return 0;
}

static int report_progress(void *arg, const struct gen_request *request, const char *text, size_t len,
                           const uint32_t *ids, size_t n_ids, struct err *err)
{
    struct line_queue *queue = arg;
    const struct serve_io *io = queue->io;
    const struct choice *choice = request->user;
    struct request_line *line = choice->line;
    const struct serve_choice which = {line->number, choice->index, line->n_choices};
    struct buf event = {0};
    if (io->progress) {
        const int rc = io->progress(io->arg, &which, text, len, ids, n_ids, err);
        line->cancelled = line->cancelled || rc > 0;
        return rc < 0 ? -1 : 0;
    }
    if (line->request.stream && len &&
        (result_event(line->id, line->n_choices > 1 ? choice->index : SIZE_MAX, text, len, &event,
                      err) < 0 ||
         io->event(io->arg, &event, err) < 0))
        return -1;
    return io->can_cancel ? read_ahead(queue, err) : 0;
}

static void report_prefill(void *arg, size_t tokens, size_t total)
{
    const struct serve_io *io = ((struct line_queue *)arg)->io;
    io->prefill(io->arg, tokens, total);
}

static int save_sequence(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    const struct serve *serve = ((struct line_queue *)arg)->serve;
    const struct choice *choice = result->request->user;
    return serve->save(serve->save_arg, seq, result, choice->line->id, err);
}

int serve_lines(struct serve *serve, const struct serve_io *io, struct gen_stats *stats,
                struct err *err)
{
    struct line_queue queue = {.serve = serve, .io = io, .prepare = request_line_prepare};
    const struct gen_callbacks callbacks = {next_choice,
                                            report_progress,
                                            end_choice,
                                            io->prefill ? report_prefill : NULL,
                                            serve->save ? save_sequence : NULL,
                                            &queue,
                                            serve->watch};
    struct err ignored, why;
    int rc = generate_cached(serve->session, &serve->options.sampling, serve->strategy, &callbacks,
                             serve->interrupted, serve->cached, stats, err);
    why = rc < 0 ? *err : err_interrupted; /* of requests that were read ahead, too */
    if (rc < 0)
        err_prefix(&why, "the run ended");
    for (int ended = 0; queue.lines && ended == 0;) {
        ended = cut_line(&queue, queue.lines, &why, rc < 0 ? &ignored : err);
        rc = rc < 0 ? rc : ended;
    }
    line_queue_release(&queue);
    return rc;
}
