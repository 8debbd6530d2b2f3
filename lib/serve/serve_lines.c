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

/* The result in OpenAI's form of a request all of whose choices have ended well. If it streams, the choices are out
 * already. */
static int put_answer(const struct line_queue *queue, const struct request_line *line, struct buf *text,
                      struct err *err)
{
    const struct openai_answer answer = line_queue_answer(queue, line);
    if (!line->request.stream)
        return openai_put(&answer, all_choices(line, err), text, err);
    return line->request.include_usage ? openai_put_chunk(&answer, json_array(), true, text, err) : 0;
}

/* Writes a chunk of a choice: what `more` adds to it, or how it ended. */
static int put_piece(struct line_queue *queue, struct choice *choice, const struct gen_result *more,
                     bool last, struct err *err)
{
    const struct request_line *line = choice->line;
    const struct logprob_form form = {line->request.openai_logprobs, line->request.top_logprobs};
    const struct openai_answer answer = line_queue_answer(queue, line);
    struct buf event = {0};
    if (!last && !openai_has_more(&choice->said, more))
        return 0;
    json_t *one = openai_piece(queue->serve->model->tok, line->request.is_chat, choice->index, more,
                               &choice->said, last, form, err);
    if (openai_put_chunk(&answer, json_or_null(json_pack("[o]", one), one ? 0 : -1, err), false, &event,
                         err) < 0) {
        buf_release(&event);
        return -1;
    }
    return queue->io->event(queue->io->arg, line->number, &event, err);
}

/* Reads what an answer of a chat says. */
static int add_said(struct choice *choice, const char *text, size_t len, struct err *err)
{
    return choice->said.parts ? tool_answer_add(&choice->parts, (struct slice){text, len}, err) : 0;
}

/* The same at its end, of all of it unless that has streamed. */
static int end_said(struct choice *choice, const struct gen_result *result, struct err *err)
{
    const bool truncated = result->finish != FINISHED_EOS && result->finish != FINISHED_STOP;
    if (!choice->said.parts)
        return 0;
    return !choice->line->request.stream && add_said(choice, result->text, result->text_len, err) < 0
               ? -1
               : tool_answer_end(&choice->parts, truncated, err);
}

/* The index that results and events have. */
static size_t index_of(const struct choice *choice)
{
    return choice->line->n_choices > 1 ? choice->index : SIZE_MAX;
}

/* Appends events of what is new in an answer that is divided. */
static int add_events(struct choice *choice, struct buf *events, struct err *err)
{
    const struct tool_answer *p = &choice->parts;
    struct openai_said *said = &choice->said;
    const char *id = choice->line->id;
    const size_t index = index_of(choice);
    int rc = 0;
    if (p->reasoning.len > said->reasoning)
        rc = result_event(
            id, index, "reasoning_delta",
            json_text(p->reasoning.data + said->reasoning, p->reasoning.len - said->reasoning), events,
            err);
    if (rc == 0 && p->content.len > said->content)
        rc = result_event(id, index, "delta",
                          json_text(p->content.data + said->content, p->content.len - said->content),
                          events, err);
    for (; said->calls < json_array_size(p->calls) && rc == 0; said->calls++)
        rc = result_event(id, index, "tool_call", json_incref(json_array_get(p->calls, said->calls)),
                          events, err);
    said->reasoning = p->reasoning.len;
    said->content = p->content.len;
    return rc;
}

/* Writes the new text of a choice as events; of one that is divided, after add_said(). */
static int put_events(struct line_queue *queue, struct choice *choice, const struct gen_result *more,
                      struct err *err)
{
    struct buf events = {0};
    int rc = 0;
    if (choice->said.parts)
        rc = add_events(choice, &events, err);
    else if (more->text_len)
        rc = result_event(choice->line->id, index_of(choice), "delta",
                          json_text(more->text, more->text_len), &events, err);
    if (rc == 0 && events.len)
        return queue->io->event(queue->io->arg, choice->line->number, &events, err);
    buf_release(&events);
    return rc;
}

/* The result of a choice, in the form of the run; NULL: error. */
static json_t *choice_json(const struct line_queue *queue, struct choice *choice,
                           const struct gen_result *result, struct err *err)
{
    const struct request_line *line = choice->line;
    const struct tokenizer *tok = queue->serve->model->tok;
    const struct logprob_form form = {line->request.openai_logprobs, line->request.top_logprobs};
    if (end_said(choice, result, err) < 0)
        return NULL;
    return line_queue_is_openai(queue, line)
               ? openai_choice(tok, line->request.is_chat, choice->index, result, &choice->said, form,
                               err)
               : result_choice(tok, index_of(choice), result, choice->said.parts, form, err);
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
    if (!any || (failure && line_queue_is_openai(queue, line)))
        return line_queue_fail(queue, line, failure, err);
    const int rc = line_queue_is_openai(queue, line) ? put_answer(queue, line, &text, err)
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
    const struct err *error = result->error;
    struct err why;
    if (result->finish != FINISHED_ERROR || result->n_ids) {
        choice->result = choice_json(queue, choice, result, &why);
        error = choice->result ? error : &why;
    }
    if (error && !line->n_failed++)
        line->failure = *error;
    if (choice->index % line->request.n_choices == 0) { /* the first of its prompt */
        line->n_prompt += result->n_prompt;
        line->n_cached += result->n_cached;
    }
    line->n_generated += result->n_ids;
    if (result->request->line == GENERATE_NO_LINE)
        hash_sum(&line->logits_hash, &result->logits_hash);
    else
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
    if (!takes && line->request.stream && choice->result && !result->error) {
        const struct gen_result end = {.finish = result->finish};
        rc = line_queue_is_openai(queue, line) ? put_piece(queue, choice, &end, true, err)
                                               : put_events(queue, choice, &end, err);
    }
    if (rc < 0)
        return -1;
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

static int report_progress(void *arg, const struct gen_result *more, struct err *err)
{
    struct line_queue *queue = arg;
    const struct serve_io *io = queue->io;
    struct choice *choice = more->request->user;
    struct request_line *line = choice->line;
    const struct serve_choice which = {line->number, choice->index, line->n_choices};
    if (io->progress) {
        const int rc =
            io->progress(io->arg, &which, more->text, more->text_len, more->ids, more->n_ids, err);
        line->cancelled = line->cancelled || rc > 0;
        return rc < 0 ? -1 : 0;
    }
    if (line->request.stream &&
        (add_said(choice, more->text, more->text_len, err) < 0 ||
         (line_queue_is_openai(queue, line) ? put_piece(queue, choice, more, false, err)
                                            : put_events(queue, choice, more, err)) < 0))
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
