/* Scores, embeds or reranks texts that are read line by line. */
#include "serve/text_lines.h"

#include "report/table.h"
#include "serve/line_queue.h"
#include "serve/lines.h"
#include "serve/result.h"

/* ---- reading ---- */

static const char *const text_members[] = {
    "id", "prompt", "text", "input", "ids", "parse_special", "encoding_format", "dimensions"};
static const char *const rerank_members[] = {
    "id", "query", "documents", "top_n", "return_documents", "instruction"};

static int check_members(const json_t *root, const char *const *known, size_t n_known,
                         foreign_members *ignored, struct err *err)
{
    const char *name;
    json_t *value;
    bool openai;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        size_t i = 0;
        while (i < n_known && strcmp(name, known[i]) != 0)
            i++;
        const int found = i < n_known ? 1 : foreign_member(name, value, ignored, &openai, err);
        if (found <= 0)
            return found < 0 ? -1 : request_unknown(name, known, n_known, err);
    }
    return 0;
}

/* The value of a field of the line's JSON object; NULL if absent or null. */
static const json_t *given_member(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

/* Adds a text of a line: the choice whose ids the caller sets. NULL: no memory. */
static struct ids *add_text(struct request_line *line, struct err *err)
{
    size_t cap = line->n_choices;
    if (mem_grow(&line->choice, &cap, line->n_choices, sizeof *line->choice, err) < 0)
        return NULL;
    struct choice *choice = &line->choice[line->n_choices];
    *choice = (struct choice){.line = line, .index = line->n_choices++};
    return &choice->ids;
}

/* Encodes a text, behind the prompt of embeddings. */
static int encode_text(const struct text_lines *job, const char *text, size_t len, bool special,
                       struct ids *ids, struct err *err)
{
    AUTO(buf_release) struct buf whole = {0};
    if (job->prompt.size) {
        if (buf_add(&whole, job->prompt.data, job->prompt.size, err) < 0 ||
            buf_add(&whole, text, len, err) < 0)
            return -1;
        text = whole.data;
        len = whole.len;
    }
    return serve_encode(session_model(job->session), text, len, true, special, ids, err);
}

/* Adds a text, as text or as ids. */
static int read_one(const struct text_lines *job, struct request_line *line, const char *name,
                    const json_t *text, bool special, struct err *err)
{
    struct ids *ids = add_text(line, err);
    if (!ids)
        return -1;
    if (json_is_array(text))
        return request_ids_of(text, ids, err);
    return json_is_string(text)
               ? encode_text(job, json_string_value(text), json_string_length(text), special, ids, err)
               : err_set(err, "\"%s\" is %s, a string is expected", name, json_type_name(text));
}

enum { MOST_INPUTS = 2048 }; /* as OpenAI has it */

/* OpenAI's `input`: a text or several, each as a string or as ids. */
static int read_input(const struct text_lines *job, struct request_line *line, const json_t *input,
                      struct err *err)
{
    const json_t *first = json_array_get(input, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    int rc = several && json_array_size(input) > MOST_INPUTS
                 ? err_set(err, "\"input\" has %zu texts, more than %d", json_array_size(input),
                           (int)MOST_INPUTS)
                 : 0;
    for (size_t i = 0; i < (several ? json_array_size(input) : 1) && rc == 0; i++)
        rc = read_one(job, line, "input", several ? json_array_get(input, i) : input,
                      job->parse_special, err);
    return rc;
}

/* Checks that the embeddings that a request of OpenAI's asks for are those that there are. */
static int check_embeddings(const struct text_lines *job, const json_t *root, bool *base64,
                            struct err *err)
{
    const json_t *format = given_member(root, "encoding_format"), *n = given_member(root, "dimensions");
    const size_t width = config_pooled_width(&session_model(job->session)->config);
    const char *name = format ? json_string_value(format) : "float";
    *base64 = name && strcmp(name, "base64") == 0;
    if (!name || (!*base64 && strcmp(name, "float") != 0))
        return err_set(err, "\"encoding_format\" is neither \"float\" nor \"base64\"");
    return !n || (json_is_integer(n) && json_integer_value(n) == (json_int_t)width)
               ? 0
               : err_set(err, "\"dimensions\": embeddings of this model have %zu", width);
}

/* The text of a document: a string, or the member "text" of an object; NULL: neither. */
static const json_t *document_text(const json_t *document)
{
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_is_string(text) ? text : NULL;
}

static struct slice slice_of(const json_t *text)
{
    return (struct slice){json_string_value(text), json_string_length(text)};
}

/* Reads a query and documents: a pair for each of these. */
static int read_pairs(const struct text_lines *job, struct request_line *line, const json_t *root,
                      struct err *err)
{
    const json_t *query = given_member(root, "query"), *documents = given_member(root, "documents"),
                 *top_n = given_member(root, "top_n"), *instruction = given_member(root, "instruction"),
                 *back = given_member(root, "return_documents"), *document;
    const struct slice none = {"", 0};
    size_t i;
    if (!json_is_string(query) || !json_is_array(documents))
        return err_set(err, "\"query\", a string, and \"documents\", a list of texts, are expected");
    if (!json_array_size(documents))
        return err_set(err, "\"documents\" is empty, a list of at least one text is expected");
    if (json_array_size(documents) > MOST_INPUTS)
        return err_set(err, "\"documents\" has %zu texts, more than %d", json_array_size(documents),
                       (int)MOST_INPUTS);
    if (top_n && (!json_is_integer(top_n) || json_integer_value(top_n) < 1))
        return err_set(err, "\"top_n\" is not an integer from 1");
    if (instruction && !json_is_string(instruction))
        return err_set(err, "\"instruction\" is %s, a string is expected", json_type_name(instruction));
    if (back && !json_is_boolean(back))
        return err_set(err, "\"return_documents\" is %s, true or false is expected",
                       json_type_name(back));
    json_array_foreach(documents, i, document)
    {
        const json_t *text = document_text(document);
        struct ids *ids = text ? add_text(line, err) : NULL;
        if (!text)
            return err_set(err, "document %zu is %s, a string or an object with \"text\" is expected",
                           i, json_type_name(document));
        if (!ids)
            return -1;
        if (rerank_encode(job->reranker, instruction ? slice_of(instruction) : none, slice_of(query),
                          slice_of(text), ids, &line->choice[i].second, err) < 0 ||
            embed_check_length(job->session, ids->len, err) < 0)
            return err_prefix(err, "document %zu", i);
    }
    return 0;
}

/* Reads the text of a line that is JSON, or several. */
static int parse_line(const struct line_queue *queue, struct request_line *line,
                      const struct serve_input *input, struct err *err)
{
    const struct text_lines *job = queue->job;
    const json_t *root;
    const char *const *known = job->reranker ? rerank_members : text_members;
    const size_t n_known = job->reranker ? ARRAY_LEN(rerank_members) : ARRAY_LEN(text_members);
    const int rc =
        request_parse(&line->request, input->json, input->len, job->lenient ? REQUEST_LENIENT : 0, err);
    line->batch = line->request.batch && job->serve && !job->reranker;
    if (line->request.batch && !line->batch)
        return err_set(err, "is a line of a batch, of which none are scored or reranked");
    if (line->request.id && !(line->id = request_format_id(line->request.id, err)))
        return -1;
    root = line->request.root;
    if (rc < 0 ||
        (!job->lenient && check_members(root, known, n_known, &line->request.ignored, err) < 0))
        return -1;
    if (job->io->ignored)
        *job->io->ignored |= line->request.ignored;
    if (job->reranker)
        return read_pairs(job, line, root, err);
    const json_t *text = given_member(root, "text"), *prompt = given_member(root, "prompt"),
                 *ids = given_member(root, "ids"), *several = given_member(root, "input"),
                 *special = given_member(root, "parse_special");
    if ((prompt != NULL) + (text != NULL) + (ids != NULL) + (several != NULL) != 1)
        return err_set(err, line_queue_is_openai(queue, line)
                                ? "\"input\", a text or a list of texts or of ids, is expected"
                                : "exactly one of \"text\", \"prompt\" and \"ids\" is expected");
    if (special && !json_is_boolean(special))
        return err_set(err, "\"parse_special\" is %s, true or false is expected",
                       json_type_name(special));
    if (several && !line_queue_is_openai(queue, line))
        return err_set(err, "\"input\" is for requests in OpenAI's form: give --openai, or \"text\"");
    if (line_queue_is_openai(queue, line) && check_embeddings(job, root, &line->base64, err) < 0)
        return -1;
    if (several)
        return read_input(job, line, several, err);
    return ids ? read_one(job, line, "ids", ids, false, err)
               : read_one(job, line, prompt ? "prompt" : "text", prompt ? prompt : text,
                          special ? json_is_true(special) : job->parse_special, err);
}

/* line_queue.prepare(): the tokens of a text, or of several. */
static int read_text(struct line_queue *queue, struct request_line *line,
                     const struct serve_input *input, struct err *err)
{
    const struct text_lines *job = queue->job;
    line->name = input->id;
    line->cancelled_by = input->cancelled;
    if (lines_check(input->json, err) < 0)
        return -1;
    if (job->logprobs && !(line->logprobs = json_array()))
        return err_no_memory(err, "a line");
    if (!job->plain)
        return parse_line(queue, line, input, err);
    struct ids *ids = add_text(line, err);
    return ids ? encode_text(job, input->json, input->len, job->parse_special, ids, err) : -1;
}

static int next_text(void *arg, bool wait, struct text_ids *text, struct err *err)
{
    struct line_queue *queue = arg;
    struct request_line *line = line_queue_first(queue);
    const int got = line ? GEN_REQUEST : line_queue_read(queue, wait, &line, err);
    if (got != GEN_REQUEST)
        return got;
    struct choice *choice = &line->choice[line->n_started++];
    *text = (struct text_ids){.id = choice->ids.id,
                              .n = choice->ids.len,
                              .user = choice,
                              .cancelled = line->cancelled_by,
                              .second = choice->second};
    line_queue_set_waiting(queue, line, line->n_started < line->n_choices);
    return GEN_REQUEST;
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
    struct request_line *line = ((struct choice *)text->user)->line;
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
    struct request_line *line = ((struct choice *)result->text->user)->line;
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

static json_t *embedding_json(const struct line_queue *queue, const struct request_line *line,
                              const float *embedding, const struct err *error, struct err *err)
{
    const struct text_lines *job = queue->job;
    const size_t tokens = line->n_choices ? line->choice->ids.len : 0;
    json_t *object =
        json_pack("{s:I, s:I}", "index", (json_int_t)line->index, "tokens", (json_int_t)tokens);
    int rc = 0;
    if (embedding)
        rc = json_put(object, "embedding",
                      json_floats(embedding, config_pooled_width(&session_model(job->session)->config)),
                      err);
    if (rc == 0)
        rc = json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
    return json_or_null(object, rc, err);
}

static int put_openai_failure(const struct line_queue *queue, const struct request_line *line,
                              const struct err *why, struct buf *text, struct err *err)
{
    const struct openai_answer answer = line_queue_answer(queue, line);
    return openai_put_failure(&answer, why, text, err);
}

static int embed_failure(const struct line_queue *queue, const struct request_line *line,
                         const struct err *why, struct buf *text, struct err *err)
{
    return line_queue_is_openai(queue, line)
               ? put_openai_failure(queue, line, why, text, err)
               : add_result(line, embedding_json(queue, line, NULL, why, err), text, err);
}

/* Writes a list in OpenAI's form; takes it over. NULL is an error that `err` has. */
static int put_list(struct line_queue *queue, struct request_line *line, const char *name, json_t *list,
                    struct err *err)
{
    struct buf text = {0};
    const struct openai_answer answer = line_queue_answer(queue, line);
    const int rc = openai_put_list(&answer, name, list, &text, err);
    return line_queue_put(queue, line, rc, false, &text, err);
}

/* The result in OpenAI's form of a line all of whose texts have been embedded. */
static int end_embeddings(struct line_queue *queue, struct request_line *line, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < line->n_choices && rc == 0; i++)
        rc = json_push(list, json_incref(line->choice[i].result), err);
    return put_list(queue, line, "data", json_or_null(list, rc, err), err);
}

static int take_embedding(void *arg, const struct text_ids *text, const float *embedding,
                          const struct err *error, struct err *err)
{
    struct line_queue *queue = arg;
    const struct text_lines *job = queue->job;
    struct choice *choice = text->user;
    struct request_line *line = choice->line;
    if (!line_queue_is_openai(queue, line))
        return put_result(queue, line, embedding_json(queue, line, embedding, error, err),
                          error != NULL, err);
    if (embedding &&
        !(choice->result = openai_embedding(choice->index, embedding,
                                            config_pooled_width(&session_model(job->session)->config),
                                            line->base64, err)))
        return -1;
    if (!embedding && !line->n_failed++)
        line->failure = *error;
    line->n_prompt += text->n;
    return ++line->n_ended < line->n_choices ? 0
           : line->n_failed                  ? line_queue_fail(queue, line, &line->failure, err)
                                             : end_embeddings(queue, line, err);
}

int text_lines_embed(const struct text_lines *job, struct embed_stats *stats, struct err *err)
{
    struct line_queue queue = {.serve = job->serve,
                               .io = job->io,
                               .prepare = read_text,
                               .failure = embed_failure,
                               .job = (void *)(uintptr_t)job};
    const struct embed_callbacks callbacks = {.next = next_text, .done = take_embedding, .arg = &queue};
    return end_lines(&queue,
                     embed_texts(job->session, job->pooling, job->normalize, &callbacks,
                                 job->interrupted, stats, err),
                     err);
}

/* ---- reranking ---- */

/* Descending scores; of equal ones, ascending indices. */
static int by_score(const void *a, const void *b)
{
    const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;
    const double left = x->relevance.score, right = y->relevance.score;
    return left > right ? -1 : left < right ? 1 : x->index < y->index ? -1 : 1;
}

/* A result, with its document unless that is NULL. */
static json_t *relevance_json(const struct choice *choice, bool openai, json_t *document,
                              struct err *err)
{
    const struct rerank_score *found = &choice->relevance;
    json_t *result = json_pack("{s:I, s:f}", "index", (json_int_t)choice->index,
                               openai ? "relevance_score" : "score", found->score);
    int rc = openai ? 0 : json_put(result, "logit", json_real(found->logit), err);
    if (document && rc == 0)
        rc = json_put(result, "document",
                      openai && json_is_string(document) ? json_pack("{s:O}", "text", document)
                                                         : json_incref(document),
                      err);
    return json_or_null(result, rc, err);
}

/* The results of a line whose pairs have all been scored, the most relevant documents first. */
static json_t *ranked(const struct request_line *line, bool openai, struct err *err)
{
    const json_t *root = line->request.root, *top_n = given_member(root, "top_n"),
                 *documents = json_is_true(given_member(root, "return_documents"))
                                  ? given_member(root, "documents")
                                  : NULL;
    const size_t most =
        top_n ? size_min((size_t)json_integer_value(top_n), line->n_choices) : line->n_choices;
    AUTO(free_auto) struct choice **order = mem_alloc(line->n_choices, sizeof *order);
    json_t *list = json_array();
    int rc = order ? 0 : err_no_memory(err, "%zu results", line->n_choices);
    for (size_t i = 0; i < line->n_choices && rc == 0; i++)
        order[i] = &line->choice[i];
    if (rc == 0)
        qsort(order, line->n_choices, sizeof(*order), by_score);
    for (size_t i = 0; i < most && rc == 0; i++)
        rc = json_push(
            list, relevance_json(order[i], openai, json_array_get(documents, order[i]->index), err),
            err);
    return json_or_null(list, rc, err);
}

static json_t *reranking_json(const struct request_line *line, const struct err *error, struct err *err)
{
    json_t *object =
        json_pack("{s:I, s:I}", "index", (json_int_t)line->index, "tokens", (json_int_t)line->n_prompt);
    int rc = error ? 0 : json_put(object, "results", ranked(line, false, err), err);
    if (rc == 0)
        rc = json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
    return json_or_null(object, rc, err);
}

static int rerank_failure(const struct line_queue *queue, const struct request_line *line,
                          const struct err *why, struct buf *text, struct err *err)
{
    if (line_queue_is_openai(queue, line))
        return put_openai_failure(queue, line, why, text, err);
    return add_result(line, reranking_json(line, why, err), text, err);
}

static int take_relevance(void *arg, const struct text_ids *text, const struct rerank_score *score,
                          const struct err *error, struct err *err)
{
    struct line_queue *queue = arg;
    const struct text_lines *job = queue->job;
    struct choice *choice = text->user;
    struct request_line *line = choice->line;
    if (score)
        choice->relevance = *score;
    if (!score && !line->n_failed++) {
        line->failure = *error;
        err_prefix(&line->failure, "document %zu", choice->index);
    }
    line->n_prompt += text->n;
    if (++line->n_ended < line->n_choices)
        return 0;
    if (line_queue_is_openai(queue, line))
        return line->n_failed ? line_queue_fail(queue, line, &line->failure, err)
                              : put_list(queue, line, "results", ranked(line, true, err), err);
    if (put_result(queue, line, reranking_json(line, line->n_failed ? &line->failure : NULL, err),
                   line->n_failed > 0, err) < 0)
        return -1;
    job->progress(job->arg);
    return 0;
}

int text_lines_rerank(const struct text_lines *job, struct embed_stats *stats, struct err *err)
{
    struct line_queue queue = {.serve = job->serve,
                               .io = job->io,
                               .prepare = read_text,
                               .failure = rerank_failure,
                               .job = (void *)(uintptr_t)job};
    const struct rerank_callbacks callbacks = {next_text, take_relevance, &queue};
    return end_lines(
        &queue, rerank_texts(job->reranker, job->session, &callbacks, job->interrupted, stats, err),
        err);
}
