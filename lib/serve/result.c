/* Writes results as lines of JSON. */
#include "serve/result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/table.h"
#include "serve/openai_logprobs.h"
#include "decode/text_streamer.h"

static json_t *ids_json(const uint32_t *id, size_t n, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = json_push(list, json_integer(id[i]), err);
    return json_or_null(list, rc, err);
}

static json_t *logprob_json(const struct tokenizer *tok, const struct logprob *lp, struct err *err)
{
    struct buf piece = {0};
    json_t *object = json_object();
    int rc = tokenizer_piece_printable(tok, lp->id, &piece, err);
    if (rc == 0)
        rc = json_put(object, "id", json_integer(lp->id), err);
    if (rc == 0)
        rc = json_put(object, "piece", json_text(piece.data, piece.len), err);
    if (rc == 0)
        rc = json_put(object, "logprob",
                      isnan(lp->logprob) ? json_null() : json_real((double)lp->logprob), err);
    buf_release(&piece);
    return json_or_null(object, rc, err);
}

/* Formats a token with its log-probability, and the k most likely tokens at its position. */
static json_t *token_json(const struct tokenizer *tok, const struct logprob *at, size_t k,
                          struct err *err)
{
    json_t *top = json_array();
    int rc = 0;
    for (size_t i = 0; i < k && rc == 0 && !isnan(at->logprob); i++)
        rc = json_push(top, logprob_json(tok, at + 1 + i, err), err);
    top = json_or_null(top, rc, err);
    json_t *token = logprob_json(tok, at, err);
    return json_or_null(token, json_put(token, "top", top, err), err);
}

static json_t *tokens_json(const struct tokenizer *tok, const struct logprob *at, size_t n, size_t k,
                           struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = json_push(list, token_json(tok, at + i * (k + 1), k, err), err);
    return json_or_null(list, rc, err);
}

int result_beam_text(const struct tokenizer *tok, const struct gen_result *result, size_t i,
                     struct buf *text, struct err *err)
{
    const struct beam *beam = &result->beams[i];
    struct text_streamer streamer;
    text_streamer_init(&streamer, tok, result->request);
    int rc = text_streamer_resume(&streamer, result->ids - result->n_prompt, result->n_prompt, err);
    for (size_t n = 0; n < beam->ids.len && rc == 0; n++)
        rc = text_streamer_add(&streamer, beam->ids.id[n], err);
    if (rc == 0)
        rc = text_streamer_finish(&streamer, false, err);
    if (rc == 0 && streamer.text.len)
        rc = buf_add(text, streamer.text.data, streamer.text.len, err);
    text_streamer_release(&streamer);
    return rc;
}

static json_t *beam_json(const struct tokenizer *tok, const struct gen_result *result, size_t i,
                         struct err *err)
{
    const struct beam *beam = &result->beams[i];
    struct buf text = {0};
    json_t *object = json_object();
    int rc = result_beam_text(tok, result, i, &text, err);
    if (rc == 0)
        rc = json_put(object, "text", json_text(text.data ? text.data : "", text.len), err);
    if (rc == 0)
        rc = json_put(object, "ids", ids_json(beam->ids.id, beam->ids.len, err), err);
    if (rc == 0)
        rc = json_put(object, "score", json_real(beam->score), err);
    buf_release(&text);
    return json_or_null(object, rc, err);
}

static json_t *beams_json(const struct tokenizer *tok, const struct gen_result *result, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < result->n_beams && rc == 0; i++)
        rc = json_push(list, beam_json(tok, result, i, err), err);
    return json_or_null(list, rc, err);
}

/* Adds the fields common to all results. Takes ownership of `ids` and `error`. */
static int put_outcome(json_t *object, const char *text, size_t len, json_t *ids, const char *finish,
                       json_t *error, struct err *err)
{
    /* Makes all calls, even after an error, as each takes ownership of its value. */
    int rc = json_put(object, "text", json_text(text, len), err);
    rc |= json_put(object, "ids", ids, err);
    rc |= json_put(object, "finish", json_string(finish), err);
    rc |= json_put(object, "error", error, err);
    return rc; /* 0 or -1 */
}

/* The log-probabilities of all generated tokens. */
static json_t *logprobs_json(const struct tokenizer *tok, const struct gen_result *result,
                             struct logprob_form form, struct err *err)
{
    return form.openai ? openai_logprobs(tok, result->logprobs, result->n_ids, result->n_best,
                                         size_min(form.n_openai, result->n_best), err)
                       : tokens_json(tok, result->logprobs, result->n_ids, result->n_best, err);
}

static int put_result(json_t *object, const struct tokenizer *tok, const struct gen_result *result,
                      struct logprob_form form, struct err *err)
{
    const struct err *error = result->error;
    if (put_outcome(object, result->text, result->text_len, ids_json(result->ids, result->n_ids, err),
                    gen_finish_name(result->finish),
                    error ? json_text(error->text, strlen(error->text)) : json_null(), err) < 0)
        return -1;
    if (result->request->seed_drawn &&
        json_put(object, "seed", json_whole(result->request->seed), err) < 0)
        return -1;
    if (result->n_best && json_put(object, "logprobs", logprobs_json(tok, result, form, err), err) < 0)
        return -1;
    if (result->beams && json_put(object, "beams", beams_json(tok, result, err), err) < 0)
        return -1;
    return result->prompt_logprobs ? json_put(object, "prompt_logprobs",
                                              tokens_json(tok, result->prompt_logprobs,
                                                          result->n_prompt, result->n_prompt_best, err),
                                              err)
                                   : 0;
}

int result_put_line(const char *id, const json_t *object, struct buf *line, struct err *err)
{
    struct buf rest = {0};
    int rc = json_write_line(object, &rest, err);
    if (rc == 0)
        rc = buf_addf(line, err, "{\"id\":%s,%s", id ? id : "null", rest.data + 1);
    buf_release(&rest);
    return rc;
}

/* Appends the line of an object, whose reference is taken over, unless `rc` is an error. */
static int put_line(const char *id, json_t *object, int rc, struct buf *line, struct err *err)
{
    if (rc == 0)
        rc = result_put_line(id, object, line, err);
    json_decref(object);
    return rc;
}

int result_event(const char *id, size_t index, const char *text, size_t len, struct buf *line,
                 struct err *err)
{
    json_t *object = json_object();
    int rc = index == SIZE_MAX ? 0 : json_put(object, "index", json_integer((json_int_t)index), err);
    if (rc == 0)
        rc = json_put(object, "delta", json_text(text, len), err);
    return put_line(id, object, rc, line, err);
}

int result_cancelled(const char *id, size_t n, struct buf *line, struct err *err)
{
    json_t *object = json_object();
    int rc = json_put(object, "cancelled", json_integer((json_int_t)n), err);
    if (rc == 0)
        rc = json_put(object, "error", json_null(), err);
    return put_line(id, object, rc, line, err);
}

int result_line(const struct tokenizer *tok, const char *id, const struct gen_result *result,
                struct logprob_form form, struct buf *line, struct err *err)
{
    json_t *object = json_object();
    return put_line(id, object, put_result(object, tok, result, form, err), line, err);
}

json_t *line_error(uint64_t number, const struct err *why)
{
    char text[sizeof why->text + 32];
    if (why->code == ERR_INTERRUPTED)
        return json_text(why->text, strlen(why->text));
    const int len =
        snprintf(text, sizeof text, "line %llu: %s", (unsigned long long)number + 1, why->text);
    return json_text(text, size_min((size_t)len, sizeof text - 1));
}

int failure_line(const char *id, uint64_t number, const struct err *why, struct buf *line,
                 struct err *err)
{
    json_t *object = json_object();
    const int rc = put_outcome(object, "", 0, json_array(), "error", line_error(number, why), err);
    return put_line(id, object, rc, line, err);
}

static json_t *new_choice(size_t index, struct err *err)
{
    json_t *object = json_object();
    return json_or_null(object, json_put(object, "index", json_integer((json_int_t)index), err), err);
}

json_t *result_choice(const struct tokenizer *tok, size_t index, const struct gen_result *result,
                      struct logprob_form form, struct err *err)
{
    json_t *object = new_choice(index, err);
    return object ? json_or_null(object, put_result(object, tok, result, form, err), err) : NULL;
}

json_t *failed_choice(size_t index, uint64_t number, const struct err *why, struct err *err)
{
    json_t *object = new_choice(index, err);
    return object ? json_or_null(
                        object,
                        put_outcome(object, "", 0, json_array(), "error", line_error(number, why), err),
                        err)
                  : NULL;
}

int choices_line(const char *id, uint64_t number, json_t *choices, const struct err *why,
                 struct buf *line, struct err *err)
{
    json_t *object = json_object();
    int rc = choices ? json_put(object, "choices", choices, err) : -1;
    if (rc == 0)
        rc = json_put(object, "error", why ? line_error(number, why) : json_null(), err);
    return put_line(id, object, rc, line, err);
}
