/* Scores or embeds texts that are read line by line. */
#include "serve/text_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/table.h"
#include "serve/lines.h"
#include "serve/result.h"
#include "serve/serve.h"

/* A line whose result is not written yet, in a list of such lines. */
struct text_line {
    struct text_line *next, **link;
    uint64_t number; /* of the input line, from 0 */
    uint64_t index;  /* of the text, from 0: lines without one do not count */
    json_t *root;    /* NULL: plain text */
    struct ids ids;
    json_t *logprobs; /* of the tokens scored so far; NULL: not requested */
};

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
static int parse_line(struct text_lines *job, const char *bytes, size_t len, json_t **root,
                      struct ids *out, struct err *err)
{
    if (request_line(bytes, len, root, err) < 0)
        return -1;
    const json_t *prompt = given_member(*root, "prompt"), *text = given_member(*root, "text"),
                 *ids = given_member(*root, "ids"), *special = given_member(*root, "parse_special");
    if (!job->lenient && check_members(*root, &job->ignored, err) < 0)
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

static void free_line(struct text_line *line)
{
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    json_decref(line->root);
    json_decref(line->logprobs);
    ids_release(&line->ids);
    free(line);
}

/* Adds a line to those in flight; the result's place in the output is reserved. */
static int add_line(struct text_lines *job, struct text_line **added, struct err *err)
{
    if (results_expect(job->results, job->lines->number, err) < 0)
        return -1;
    struct text_line *line = *added = calloc(1, sizeof *line);
    if (!line)
        return err_no_memory(err, "a line");
    *line = (struct text_line){.number = job->lines->number,
                               .index = job->n_lines,
                               .next = job->first,
                               .link = &job->first,
                               .logprobs = job->logprobs ? json_array() : NULL};
    if (line->next)
        line->next->link = &line->next;
    job->first = line;
    job->n_lines++;
    return job->logprobs && !line->logprobs ? err_no_memory(err, "a line") : 0;
}

/* Writes a result, `object`, which is released also after an error, and frees the line. After an error, which NULL is one
 * of, the line stays in flight. */
static int finish_line(struct text_lines *job, struct text_line *line, json_t *object, bool failed,
                       struct err *err)
{
    const json_t *id = json_object_get(line->root, "id");
    char *id_text = id ? request_format_id(id, err) : NULL;
    struct buf text = {0};
    int rc = !object || (id && !id_text) ? -1 : result_put_line(id_text, object, &text, err);
    free(id_text);
    json_decref(object);
    if (rc < 0) {
        buf_release(&text);
        return -1;
    }
    job->n_failed += failed;
    rc = results_put(job->results, line->number, &text, err);
    free_line(line);
    return rc;
}

static int fail_line(struct text_lines *job, struct text_line *line, const struct err *why,
                     struct err *err)
{
    return finish_line(job, line, job->failure(job, line, why, err), true, err);
}

/* Reads the next line with a text; invalid ones get a result at once. Returns as lines_next(). */
static int next_line(struct text_lines *job, bool wait, struct text_line **out, struct err *err)
{
    const char *bytes;
    size_t len;
    struct err why;
    for (;;) {
        struct text_line *line;
        const int got = lines_next(job->lines, wait, &bytes, &len, err);
        if (got != GEN_REQUEST)
            return got;
        if (add_line(job, &line, err) < 0)
            return -1;
        int rc = lines_check(bytes, &why);
        if (rc == 0)
            rc = job->lines->json ? parse_line(job, bytes, len, &line->root, &line->ids, &why)
                                  : serve_encode(session_model(job->session), bytes, len, true,
                                                 job->parse_special, &line->ids, &why);
        *out = line;
        if (rc == 0)
            return GEN_REQUEST;
        if (fail_line(job, line, &why, err) < 0)
            return -1;
    }
}

static int next_text(void *arg, bool wait, struct text_ids *text, struct err *err)
{
    struct text_line *line;
    const int got = next_line(arg, wait, &line, err);
    if (got == GEN_REQUEST)
        *text = (struct text_ids){line->ids.id, line->ids.len, line};
    return got;
}

/* Ends a run, whose result is `rc`: lines in flight get a result with the reason. Ignores further errors. */
static int end_lines(struct text_lines *job, int rc, const struct err *err)
{
    struct err ignored, why = rc < 0 ? *err : err_interrupted;
    err_prefix(&why, "the run ended");
    for (struct text_line *line; (line = job->first);) {
        json_decref(line->logprobs);
        line->logprobs = NULL;
        if (fail_line(job, line, &why, &ignored) < 0 && job->first == line)
            free_line(line);
    }
    if (rc < 0)
        (void)!results_end(job->results, &ignored);
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

static json_t *score_json(const struct text_line *line, const struct score_result *result,
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

static json_t *score_failure(const struct text_lines *job, const struct text_line *line,
                             const struct err *why, struct err *err)
{
    (void)job;
    return score_json(line, &(struct score_result){.error = why}, err);
}

static int add_logprob(void *arg, const struct text_ids *text, size_t pos, double logprob,
                       struct err *err)
{
    const struct text_lines *job = arg;
    struct text_line *line = text->user;
    struct buf piece = {0};
    if (!line->logprobs)
        return 0;
    int rc = tokenizer_piece_printable(session_model(job->session)->tok, text->id[pos], &piece, err);
    if (rc == 0)
        rc = json_push(line->logprobs,
                       json_pack("{s:I, s:o, s:o}", "id", (json_int_t)text->id[pos], "piece",
                                 json_text(piece.data, piece.len), "logprob",
                                 pos ? json_real(logprob) : json_null()),
                       err);
    buf_release(&piece);
    return rc;
}

static int take_score(void *arg, const struct score_result *result, struct err *err)
{
    struct text_lines *job = arg;
    struct text_line *line = result->text->user;
    if (finish_line(job, line, score_json(line, result, err), result->error != NULL, err) < 0)
        return -1;
    job->progress(job->arg);
    return 0;
}

int text_lines_score(struct text_lines *job, struct score_stats *stats, struct err *err)
{
    const struct score_callbacks callbacks = {next_text, add_logprob, take_score, job};
    job->failure = score_failure;
    return end_lines(
        job,
        score_texts(job->session, job->stride, &callbacks, job->lines->source.interrupted, stats, err),
        err);
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

static json_t *embedding_json(const struct text_lines *job, const struct text_line *line,
                              const float *embedding, const struct err *error, struct err *err)
{
    json_t *object =
        json_pack("{s:I, s:I}", "index", (json_int_t)line->index, "tokens", (json_int_t)line->ids.len);
    int rc = 0;
    if (embedding)
        rc = put_embedding(object, embedding, session_model(job->session)->config.hidden, err);
    if (rc == 0)
        rc = json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
    return json_or_null(object, rc, err);
}

static json_t *embed_failure(const struct text_lines *job, const struct text_line *line,
                             const struct err *why, struct err *err)
{
    return embedding_json(job, line, NULL, why, err);
}

static int take_embedding(void *arg, const struct text_ids *text, const float *embedding,
                          const struct err *error, struct err *err)
{
    struct text_lines *job = arg;
    struct text_line *line = text->user;
    return finish_line(job, line, embedding_json(job, line, embedding, error, err), error != NULL, err);
}

int text_lines_embed(struct text_lines *job, struct embed_stats *stats, struct err *err)
{
    const struct embed_callbacks callbacks = {next_text, take_embedding, job};
    job->failure = embed_failure;
    return end_lines(job,
                     embed_texts(job->session, job->pooling, job->normalize, &callbacks,
                                 job->lines->source.interrupted, stats, err),
                     err);
}
