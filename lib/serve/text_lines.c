/* Scores or embeds texts that are read line by line. */
#include "serve/text_lines.h"

#include "report/table.h"
#include "serve/line_queue.h"
#include "serve/lines.h"
#include "serve/result.h"

/* ---- reading ---- */

static int check_members(const json_t *root, foreign_members *ignored, struct err *err)
{
    static const char *const known[] = {"id", "prompt", "text", "ids", "parse_special"};
    const char *name;
    json_t *value;
    bool openai;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(name, known[i]) != 0)
            i++;
        const int found = i < ARRAY_LEN(known) ? 1 : foreign_member(name, value, ignored, &openai, err);
        if (found <= 0)
            return found < 0 ? -1 : request_unknown(name, known, ARRAY_LEN(known), err);
    }
    return 0;
}

/* The value of a field of the line's JSON object; NULL if absent or null. */
static const json_t *given_member(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

/* Parses a line of JSON: keeps the object as its root and appends token ids. */
static int parse_line(const struct text_lines *job, const char *bytes, size_t len, json_t **root,
                      struct ids *out, struct err *err)
{
    if (request_line(bytes, len, root, err) < 0)
        return -1;
    const json_t *prompt = given_member(*root, "prompt"), *text = given_member(*root, "text"),
                 *ids = given_member(*root, "ids"), *special = given_member(*root, "parse_special");
    if (!job->lenient && check_members(*root, job->io->ignored, err) < 0)
        return -1;
    if ((prompt != NULL) + (text != NULL) + (ids != NULL) != 1)
        return err_set(err, "exactly one of \"text\", \"prompt\" and \"ids\" is expected");
    if (ids)
        return request_ids_of(ids, out, err);
    text = text ? text : prompt;
    if (!json_is_string(text))
        return err_set(err, "\"%s\" is %s, a string is expected", prompt ? "prompt" : "text",
                       json_type_name(text));
    if (special && !json_is_boolean(special))
        return err_set(err, "\"parse_special\" is %s, true or false is expected",
                       json_type_name(special));
    return serve_encode(session_model(job->session), json_string_value(text), json_string_length(text),
                        true, special ? json_is_true(special) : job->parse_special, out, err);
}

/* line_queue.prepare(): the tokens of a text. */
static int read_text(struct line_queue *queue, struct request_line *line,
                     const struct serve_input *input, struct err *err)
{
    const struct text_lines *job = queue->job;
    json_t *root = NULL;
    int rc = lines_check(input->json, err);
    if (job->logprobs && !(line->logprobs = json_array()))
        return err_no_memory(err, "a line");
    if (rc == 0)
        rc = job->plain ? serve_encode(session_model(job->session), input->json, input->len, true,
                                       job->parse_special, &line->prompt, err)
                        : parse_line(job, input->json, input->len, &root, &line->prompt, err);
    const json_t *id = json_object_get(root, "id");
    if (id && !(line->id = request_format_id(id, err)))
        rc = -1;
    json_decref(root);
    return rc;
}

static int next_text(void *arg, bool wait, struct text_ids *text, struct err *err)
{
    struct request_line *line;
    const int got = line_queue_read(arg, wait, &line, err);
    if (got == GEN_REQUEST)
        *text = (struct text_ids){line->prompt.id, line->prompt.len, line};
    return got;
}

/* Appends the result line of an object, whose reference is taken over; NULL is an error that `err` has. */
static int add_result(const struct request_line *line, json_t *object, struct buf *text,
                      struct err *err)
{
    const int rc = object ? result_put_line(line->id, object, text, err) : -1;
    json_decref(object);
    return rc;
}

/* Writes a result. After an error the line stays in the queue. */
static int put_result(struct line_queue *queue, struct request_line *line, json_t *object, bool failed,
                      struct err *err)
{
    struct buf text = {0};
    if (add_result(line, object, &text, err) == 0)
        return line_queue_put(queue, line, 0, failed, &text, err);
    buf_release(&text);
    return -1;
}

/* Ends a run, whose result is `rc`: lines in flight get a result with the reason. Ignores further errors. */
static int end_lines(struct line_queue *queue, int rc, const struct err *err)
{
    struct err ignored, why = rc < 0 ? *err : err_interrupted;
    err_prefix(&why, "the run ended");
    while (queue->lines) {
        json_decref(queue->lines->logprobs);
        queue->lines->logprobs = NULL;
        (void)!line_queue_fail(queue, queue->lines, &why, &ignored);
    }
    return rc;
}

/* ---- scoring ---- */

static json_t *number_json(double value, bool as_text)
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
        json_put(object, "mean_logprob", number_json(mean, as_text), err) < 0)
        return -1;
    return json_put(object, "perplexity", number_json(perplexity, as_text), err);
}

static json_t *score_json(const struct request_line *line, const struct score_result *result,
                          struct err *err)
{
    json_t *object = json_object();
    int rc = score_put(object, result->tokens, result->sum_logprob, false, err);
    if (rc == 0)
        rc = json_put(object, "sum_logprob", json_real(result->sum_logprob), err);
    if (rc == 0)
        rc = json_put(object, "error",
                      result->error ? line_error(line->number, result->error) : json_null(), err);
    if (rc == 0 && line->logprobs)
        rc = json_put(object, "logprobs", json_incref(line->logprobs), err);
    return json_or_null(object, rc, err);
}

static int score_failure(const struct line_queue *queue, const struct request_line *line,
                         const struct err *why, struct buf *text, struct err *err)
{
    (void)queue;
    return add_result(line, score_json(line, &(struct score_result){.error = why}, err), text, err);
}

static int add_logprob(void *arg, const struct text_ids *text, size_t pos, double logprob,
                       struct err *err)
{
    const struct text_lines *job = ((const struct line_queue *)arg)->job;
    struct request_line *line = text->user;
    AUTO(buf_release) struct buf piece = {0};
    if (!line->logprobs)
        return 0;
    int rc = tokenizer_piece_printable(session_model(job->session)->tok, text->id[pos], &piece, err);
    if (rc == 0)
        rc = json_push(line->logprobs,
                       json_pack("{s:I, s:o, s:o}", "id", (json_int_t)text->id[pos], "piece",
                                 json_text(piece.data, piece.len), "logprob",
                                 pos ? json_real(logprob) : json_null()),
                       err);
    return rc;
}

static int take_score(void *arg, const struct score_result *result, struct err *err)
{
    struct line_queue *queue = arg;
    const struct text_lines *job = queue->job;
    struct request_line *line = result->text->user;
    if (put_result(queue, line, score_json(line, result, err), result->error != NULL, err) < 0)
        return -1;
    job->progress(job->arg);
    return 0;
}

int text_lines_score(const struct text_lines *job, struct score_stats *stats, struct err *err)
{
    struct line_queue queue = {
        .io = job->io, .prepare = read_text, .failure = score_failure, .job = (void *)(uintptr_t)job};
    const struct score_callbacks callbacks = {next_text, add_logprob, take_score, &queue};
    return end_lines(
        &queue, score_texts(job->session, job->stride, &callbacks, job->interrupted, stats, err), err);
}

/* ---- embedding ---- */

/* Adds the shortest decimal numbers that read back as the same floats. */
static int put_embedding(json_t *object, const float *embedding, size_t n, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "an embedding");
    for (size_t i = 0; i < n && rc == 0; i++) {
        char text[40];
        int digits = 6;
        do
            snprintf(text, sizeof text, "%.*g", digits, (double)embedding[i]);
        while ((float)strtod(text, NULL) != embedding[i] && ++digits <= 9);
        rc = json_push(list, json_real(strtod(text, NULL)), err);
    }
    if (rc == 0)
        return json_put(object, "embedding", list, err);
    json_decref(list);
    return rc;
}

static json_t *embedding_json(const struct line_queue *queue, const struct request_line *line,
                              const float *embedding, const struct err *error, struct err *err)
{
    const struct text_lines *job = queue->job;
    json_t *object = json_pack("{s:I, s:I}", "index", (json_int_t)line->index, "tokens",
                               (json_int_t)line->prompt.len);
    int rc = 0;
    if (embedding)
        rc = put_embedding(object, embedding, session_model(job->session)->config.hidden, err);
    if (rc == 0)
        rc = json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
    return json_or_null(object, rc, err);
}

static int embed_failure(const struct line_queue *queue, const struct request_line *line,
                         const struct err *why, struct buf *text, struct err *err)
{
    return add_result(line, embedding_json(queue, line, NULL, why, err), text, err);
}

static int take_embedding(void *arg, const struct text_ids *text, const float *embedding,
                          const struct err *error, struct err *err)
{
    struct line_queue *queue = arg;
    struct request_line *line = text->user;
    return put_result(queue, line, embedding_json(queue, line, embedding, error, err), error != NULL,
                      err);
}

int text_lines_embed(const struct text_lines *job, struct embed_stats *stats, struct err *err)
{
    struct line_queue queue = {
        .io = job->io, .prepare = read_text, .failure = embed_failure, .job = (void *)(uintptr_t)job};
    const struct embed_callbacks callbacks = {next_text, take_embedding, &queue};
    return end_lines(&queue,
                     embed_texts(job->session, job->pooling, job->normalize, &callbacks,
                                 job->interrupted, stats, err),
                     err);
}
