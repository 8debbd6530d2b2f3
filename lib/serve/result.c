/* Writes results as lines of JSON. */
#include "serve/result.h"

#include "decode/text_streamer.h"
#include "report/table.h"
#include "serve/lines.h"
#include "serve/openai.h"

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
    AUTO(buf_release) struct buf piece = {0};
    json_t *object = NULL;
    const int rc = tokenizer_piece_printable(tok, lp->id, &piece, err);
    if (rc == 0)
        object = json_pack("{s:I, s:o, s:o}", "id", (json_int_t)lp->id, "piece",
                           json_text(piece.data, piece.len), "logprob",
                           isnan(lp->logprob) ? json_null() : json_real((double)lp->logprob));
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
    AUTO(buf_release) struct buf text = {0};
    json_t *object = NULL;
    const int rc = result_beam_text(tok, result, i, &text, err);
    if (rc == 0)
        object = json_pack("{s:o, s:o, s:f}", "text", json_text(buf_text(&text), text.len), "ids",
                           ids_json(beam->ids.id, beam->ids.len, err), "score", beam->score);
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

/* The members that all results have, behind the index of one of several choices; SIZE_MAX: there is one only. Takes
 * over `ids` and `error`. NULL: out of memory. */
static json_t *new_result(size_t index, const char *text, size_t len, json_t *ids, const char *finish,
                          json_t *error, struct err *err)
{
    json_t *object = index == SIZE_MAX ? json_object() : json_pack("{s:I}", "index", (json_int_t)index);
    json_t *outcome = json_pack("{s:o, s:o, s:s, s:o}", "text", json_text(text, len), "ids", ids,
                                "finish", finish, "error", error);
    const int rc = outcome ? json_object_update(object, outcome) : -1;
    json_decref(outcome);
    if (rc == 0)
        return object;
    json_decref(object);
    err_no_memory(err, "a result");
    return NULL;
}

/* The log-probabilities of all generated tokens. */
static json_t *logprobs_json(const struct tokenizer *tok, const struct gen_result *result,
                             struct logprob_form form, struct err *err)
{
    return form.openai ? openai_logprobs(tok, true, result, form, err)
                       : tokens_json(tok, result->logprobs, result->n_ids, result->n_best, err);
}

/* Adds what an answer has besides text. */
static int put_parts(json_t *object, const struct tool_answer *parts, struct err *err)
{
    const struct buf *thought = &parts->reasoning;
    int rc = 0;
    if (thought->len)
        rc = json_put(object, "reasoning_content", json_text(thought->data, thought->len), err);
    if (rc == 0 && parts->calls)
        rc = json_put(object, "tool_calls", json_incref(parts->calls), err);
    return rc;
}

json_t *result_choice(const struct tokenizer *tok, size_t index, const struct gen_result *result,
                      const struct tool_answer *parts, struct logprob_form form, struct err *err)
{
    const struct err *error = result->error;
    json_t *object =
        new_result(index, parts ? buf_text(&parts->content) : result->text,
                   parts ? parts->content.len : result->text_len,
                   ids_json(result->ids, result->n_ids, err), gen_finish_name(result->finish),
                   error ? json_text(error->text, strlen(error->text)) : json_null(), err);
    int rc = object ? 0 : -1;
    if (rc == 0 && parts)
        rc = put_parts(object, parts, err);
    if (rc == 0 && result->request->seed_drawn)
        rc = json_put(object, "seed", json_whole(result->request->seed), err);
    if (rc == 0 && result->n_best)
        rc = json_put(object, "logprobs", logprobs_json(tok, result, form, err), err);
    if (rc == 0 && result->beams)
        rc = json_put(object, "beams", beams_json(tok, result, err), err);
    if (rc == 0 && result->prompt_logprobs)
        rc = json_put(
            object, "prompt_logprobs",
            tokens_json(tok, result->prompt_logprobs, result->n_prompt, result->n_prompt_best, err),
            err);
    return json_or_null(object, rc, err);
}

json_t *failed_choice(size_t index, uint64_t number, const struct err *why, struct err *err)
{
    return new_result(index, "", 0, json_array(), "error", line_error(number, why), err);
}

int result_put_line(const char *id, const json_t *object, struct buf *line, struct err *err)
{
    AUTO(buf_release) struct buf rest = {0};
    int rc = json_write_line(object, &rest, err);
    if (rc == 0)
        rc = buf_addf(line, err, "{\"id\":%s,%s", id ? id : "null", rest.data + 1);
    return rc;
}

/* Appends the line of an object, whose reference is taken over; NULL: out of memory. */
static int put_line(const char *id, json_t *object, struct buf *line, struct err *err)
{
    const int rc = object ? result_put_line(id, object, line, err) : err_no_memory(err, "a result");
    json_decref(object);
    return rc;
}

int result_event(const char *id, size_t index, const char *name, json_t *value, struct buf *line,
                 struct err *err)
{
    return put_line(id,
                    index == SIZE_MAX
                        ? json_pack("{s:o}", name, value)
                        : json_pack("{s:I, s:o}", "index", (json_int_t)index, name, value),
                    line, err);
}

int result_cancelled(const char *id, size_t n, struct buf *line, struct err *err)
{
    return put_line(id, json_pack("{s:I, s:n}", "cancelled", (json_int_t)n, "error"), line, err);
}

int result_line(const struct tokenizer *tok, const char *id, const struct gen_result *result,
                struct logprob_form form, struct buf *line, struct err *err)
{
    json_t *object = result_choice(tok, SIZE_MAX, result, NULL, form, err);
    return object ? put_line(id, object, line, err) : -1;
}

int failure_line(const char *id, uint64_t number, const struct err *why, struct buf *line,
                 struct err *err)
{
    return put_line(id, failed_choice(SIZE_MAX, number, why, err), line, err);
}

int choices_line(const char *id, uint64_t number, json_t *choices, const struct err *why,
                 struct buf *line, struct err *err)
{
    return put_line(id,
                    json_pack("{s:o, s:o}", "choices", choices, "error",
                              why ? line_error(number, why) : json_null()),
                    line, err);
}
