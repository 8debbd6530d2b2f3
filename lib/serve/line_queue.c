/* Requests without a result: reading, cancelling, failing. */
#include "serve/line_queue.h"

#include "serve/lines.h"
#include "serve/result.h"

static struct request_line *new_line(struct line_queue *queue, uint64_t number)
{
    struct request_line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    *line = (struct request_line){
        .number = number, .index = queue->n_read++, .next = queue->lines, .link = &queue->lines};
    if (line->next)
        line->next->link = &line->next;
    return queue->lines = line;
}

static void release_replay(struct replay *replay)
{
    if (!replay)
        return;
    json_decref(replay->receipt);
    ids_release(&replay->expected);
    ids_release(&replay->ends);
    free(replay->stop);
    free(replay);
}

void line_queue_drop(struct line_queue *queue, struct request_line *line)
{
    line_queue_set_waiting(queue, line, false);
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    if (line->constraint)
        constraint_cache_put(line->constraints, line->constraint);
    for (size_t i = 0; i < line->n_choices; i++) {
        ids_release(&line->choice[i].ids);
        json_decref(line->choice[i].result);
        tool_answer_release(&line->choice[i].parts);
    }
    free(line->choice);
    dry_breakers_release(&line->breakers);
    request_close(&line->request);
    ids_release(&line->prompt);
    buf_release(&line->prompt_text);
    json_decref(line->logprobs);
    buf_release(&line->text);
    free(line->lora_factor);
    answer_plan_release(&line->plan);
    free(line->id);
    release_replay(line->replay);
    free(line);
}

void line_queue_release(struct line_queue *queue)
{
    while (queue->lines)
        line_queue_drop(queue, queue->lines);
}

bool line_queue_is_openai(const struct line_queue *queue, const struct request_line *line)
{
    return line->batch || (queue->serve && queue->serve->options.openai);
}

struct openai_answer line_queue_answer(const struct line_queue *queue, const struct request_line *line)
{
    const struct serve *serve = queue->serve;
    const json_t *id = line->request.id;
    const char *model = json_string_value(json_object_get(line->request.root, "model"));
    return (struct openai_answer){
        .number = line->number,
        .id = line->batch          ? NULL
              : line->name         ? line->name
              : json_is_string(id) ? json_string_value(id)
                                   : line->id,
        .batch = line->batch,
        .custom_id = line->id,
        .unnumbered = serve->options.service,
        .chat = line->request.is_chat,
        .model = model         ? model
                 : serve->name ? serve->name
                               : serve->model->name,
        .created = serve->created,
        .n_prompt = line->n_prompt,
        .n_cached = line->n_cached,
        .n_generated = line->n_generated,
        .ended = serve->options.openai && line->n_choices && line->n_ended == line->n_choices,
        .logits_hash = line->logits_hash,
        .seed = line->request.gen.seed_drawn ? &line->request.gen.seed : NULL,
    };
}

/* Passes a result on, unless `rc` is an error, and frees the line. */
static int put_result(struct line_queue *queue, struct request_line *line, int rc, bool failed,
                      int status, struct buf *text, struct err *err)
{
    const struct serve_result result = {line->number,   failed,         line->logits_hash, status,
                                        line->n_prompt, line->n_cached, line->n_generated};
    if (rc == 0)
        rc = queue->io->put(queue->io->arg, &result, text, err);
    else
        buf_release(text);
    line_queue_drop(queue, line);
    return rc;
}

int line_queue_put(struct line_queue *queue, struct request_line *line, int rc, bool failed,
                   struct buf *text, struct err *err)
{
    return put_result(queue, line, rc, failed, OPENAI_OK, text, err);
}

static int put_failure(const struct line_queue *queue, const struct request_line *line,
                       const struct err *why, struct buf *text, struct err *err)
{
    if (!line_queue_is_openai(queue, line))
        return failure_line(line->id, line->number, why, text, err);
    const struct openai_answer answer = line_queue_answer(queue, line);
    return openai_put_failure(&answer, why, text, err);
}

int line_queue_fail(struct line_queue *queue, struct request_line *line, const struct err *why,
                    struct err *err)
{
    const struct serve_io *io = queue->io;
    struct buf text = {0};
    if (io->take) {
        const struct serve_choice rest = {line->number, SIZE_MAX, line->n_choices};
        const int taken = io->take(io->arg, &rest, NULL, why, err);
        line_queue_drop(queue, line);
        return taken;
    }
    const int rc = queue->failure ? queue->failure(queue, line, why, &text, err)
                                  : put_failure(queue, line, why, &text, err);
    return put_result(queue, line, rc, true, openai_status(why), &text, err);
}

void line_queue_set_waiting(struct line_queue *queue, struct request_line *line, bool waits)
{
    queue->n_waiting += (size_t)waits - (size_t)line->waits;
    line->waits = waits;
}

struct request_line *line_queue_first(const struct line_queue *queue)
{
    struct request_line *first = NULL;
    for (struct request_line *line = queue->lines; line && queue->n_waiting; line = line->next)
        if (line->waits && (!first || line->number < first->number))
            first = line;
    return first;
}

int line_queue_open(const struct line_queue *queue, struct request_line *line,
                    const struct serve_input *input, struct err *err)
{
    const bool lenient = queue->serve->options.lenient;
    struct request *request = &line->request;
    if (lines_check(input->json, err) < 0)
        return -1;
    int rc = request_open(
        request, input->json, input->len,
        (lenient ? REQUEST_LENIENT : 0) | (queue->serve->options.openai ? REQUEST_OPENAI : 0), err);
    if (rc == 0 && input->url)
        rc = request_check_url(request, input->url, err);
    line->batch = request->batch;
    line->name = input->id;
    if (request->id && !(line->id = request_format_id(request->id, err)))
        return -1;
    if (rc < 0)
        return queue->io->take && !request->root ? err_prefix(err, "settings") : -1;
    if (queue->io->ignored)
        *queue->io->ignored |= request->ignored;
    if (!request->cancel)
        return 0;
    return queue->io->can_cancel
               ? request_check_cancel(request, lenient, err)
               : err_set(err, "\"cancel\" is for bmc-gen --jsonl: in the library (bmc.h) a "
                              "callback's \"cancelled\" stops a request");
}

/* Serves a request to cancel others: ends those with its id, and writes how many had not been cancelled before. */
static int serve_cancel(struct line_queue *queue, struct request_line *by, struct err *err)
{
    struct buf text = {0};
    size_t n = 0;
    AUTO(free_auto) char *id = request_format_id(by->request.cancel, err);
    for (struct request_line *line = queue->lines; line && id; line = line->next)
        if (line != by && !line->cancelled && line->id && strcmp(line->id, id) == 0) {
            line->cancelled = 1;
            n++;
        }
    const int rc = id ? result_cancelled(by->id, n, &text, err) : -1;
    return line_queue_put(queue, by, rc, false, &text, err);
}

static void mark_cancelled(struct line_queue *queue, uint64_t number)
{
    for (struct request_line *line = queue->lines; line; line = line->next)
        if (line->number == number)
            line->cancelled = 1;
}

int line_queue_read(struct line_queue *queue, bool wait, struct request_line **out, struct err *err)
{
    struct err why;
    for (;;) {
        struct serve_input input = {0};
        const int got = queue->io->next(queue->io->arg, wait, &input, err);
        if (got != GEN_REQUEST)
            return got;
        if (input.cancels) {
            mark_cancelled(queue, input.number);
            continue;
        }
        struct request_line *line = *out = new_line(queue, input.number);
        if (!line)
            return err_no_memory(err, "a request");
        const int rc = queue->prepare(queue, line, &input, &why);
        if (rc == 0 && !line->request.cancel)
            return GEN_REQUEST;
        if (rc == 0 && serve_cancel(queue, line, err) < 0)
            return -1;
        if (rc < 0 && why.code == ERR_FAILED) /* what it says cannot be read or done */
            why.code = ERR_INVALID;
        if (rc < 0 && line_queue_fail(queue, line, &why, err) < 0)
            return -1;
    }
}
