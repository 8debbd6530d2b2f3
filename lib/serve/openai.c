/* Answers in OpenAI's form: bodies of chat completions and completions, log-probabilities, and lines of batches. */
#include "serve/openai.h"

#include "report/table.h"
#include "serve/lines.h"
enum { OK = 200, BAD_REQUEST = 400, SERVER_ERROR = 500 };

/* OpenAI has no name for answers that were cancelled: they are not complete. */
static const char *finish_reason(enum gen_finish finish)
{
    return finish == FINISHED_EOS || finish == FINISHED_STOP ? "stop" : "length";
}

/* ---- log-probabilities ---- */

static json_t *bytes_json(const struct buf *piece, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "a token");
    for (size_t i = 0; i < piece->len && rc == 0; i++)
        rc = json_push(list, json_integer((unsigned char)piece->data[i]), err);
    return json_or_null(list, rc, err);
}

/* A token: its text, where bytes that are not UTF-8 are printed, its log-probability and its bytes. */
static json_t *token_json(const struct tokenizer *tok, const struct logprob *lp, struct err *err)
{
    AUTO(buf_release) struct buf text = {0}, bytes = {0};
    json_t *object = NULL;
    int rc = tokenizer_piece_printable(tok, lp->id, &text, err);
    if (rc == 0)
        rc = tokenizer_piece(tok, lp->id, &bytes, err);
    if (rc == 0)
        object = json_pack("{s:o, s:f, s:o}", "token", json_text(buf_text(&text), text.len), "logprob",
                           (double)lp->logprob, "bytes", bytes_json(&bytes, err));
    return json_or_null(object, rc, err);
}

/* A token with its alternatives. */
static json_t *position_json(const struct tokenizer *tok, const struct logprob *at, size_t top,
                             struct err *err)
{
    json_t *list = json_array(), *token = token_json(tok, at, err);
    int rc = 0;
    for (size_t i = 0; i < top && rc == 0; i++)
        rc = json_push(list, token_json(tok, at + 1 + i, err), err);
    return json_or_null(token, json_put(token, "top_logprobs", json_or_null(list, rc, err), err), err);
}

/* {"content": [{"token", "logprob", "bytes", "top_logprobs": [..]}, ..]} */
static json_t *chat_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n,
                             size_t n_best, size_t top, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = json_push(list, position_json(tok, at + i * (n_best + 1), top, err), err);
    return json_or_null(json_pack("{s:o}", "content", json_or_null(list, rc, err)), 0, err);
}

static int put_alternatives(const struct tokenizer *tok, const struct logprob *best, size_t n,
                            json_t *list, struct err *err)
{
    json_t *object = json_object();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        AUTO(buf_release) struct buf text = {0};
        rc = tokenizer_piece_printable(tok, best[i].id, &text, err);
        if (rc == 0)
            rc = json_put(object, buf_text(&text), json_real((double)best[i].logprob), err);
    }
    return json_push(list, json_or_null(object, rc, err), err);
}

/* {"tokens": [..], "token_logprobs": [..], "top_logprobs": [{TOKEN: LOGPROB, ..}, ..], "text_offset": [..]}; offsets are in
 * bytes of the tokens' texts. */
static json_t *completion_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n,
                                   size_t n_best, size_t top, struct err *err)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *best = json_array(),
           *offsets = json_array();
    size_t offset = 0;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++, at += n_best + 1) {
        AUTO(buf_release) struct buf text = {0};
        rc = tokenizer_piece_printable(tok, at->id, &text, err);
        if (rc == 0)
            rc = json_push(tokens, json_text(buf_text(&text), text.len), err);
        if (rc == 0)
            rc = json_push(logprobs, json_real((double)at->logprob), err);
        if (rc == 0)
            rc = put_alternatives(tok, at + 1, top, best, err);
        if (rc == 0)
            rc = json_push(offsets, json_integer((json_int_t)offset), err);
        offset += text.len;
    }
    json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                               "top_logprobs", best, "text_offset", offsets);
    return json_or_null(object, rc, err);
}

json_t *openai_logprobs(const struct tokenizer *tok, bool chat, const struct gen_result *result,
                        struct logprob_form form, struct err *err)
{
    const size_t top = form.openai ? size_min(form.n_openai, result->n_best) : result->n_best;
    return (chat ? chat_logprobs : completion_logprobs)(tok, result->logprobs, result->n_ids,
                                                        result->n_best, top, err);
}

/* ---- answers ---- */

json_t *openai_choice(const struct tokenizer *tok, bool chat, size_t index,
                      const struct gen_result *result, struct logprob_form form, struct err *err)
{
    json_t *logprobs = result->n_best ? openai_logprobs(tok, chat, result, form, err) : json_null();
    json_t *text = json_text(result->text, result->text_len);
    const char *finish = finish_reason(result->finish);
    json_t *object = chat ? json_pack("{s:I, s:{s:s, s:o, s:n}, s:o, s:s}", "index", (json_int_t)index,
                                      "message", "role", "assistant", "content", text, "refusal",
                                      "logprobs", logprobs, "finish_reason", finish)
                          : json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)index, "text", text,
                                      "logprobs", logprobs, "finish_reason", finish);
    return json_or_null(object, 0, err);
}

json_t *openai_body(const struct openai_answer *a, json_t *choices, struct err *err)
{
    char id[40];
    if (!choices)
        return NULL;
    snprintf(id, sizeof id, "%s-%llu", a->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)a->number + 1);
    json_t *body = json_pack("{s:s, s:s, s:I, s:o, s:o, s:{s:I, s:I, s:I}}", "id", id, "object",
                             a->chat ? "chat.completion" : "text_completion", "created",
                             (json_int_t)a->created, "model", json_text(a->model, strlen(a->model)),
                             "choices", choices, "usage", "prompt_tokens", (json_int_t)a->n_prompt,
                             "completion_tokens", (json_int_t)a->n_generated, "total_tokens",
                             (json_int_t)(a->n_prompt + a->n_generated));
    return json_or_null(body, 0, err);
}

/* Appends a line of a batch; takes over `body` and `error`. */
static int put_line(const char *id, uint64_t number, int status, json_t *body, json_t *error,
                    struct buf *line, struct err *err)
{
    const unsigned long long n = number + 1;
    AUTO(buf_release) struct buf rest = {0};
    char request[40];
    snprintf(request, sizeof request, "req-%llu", n);
    AUTO(json_auto)
    json_t *object = json_pack("{s:{s:i, s:s, s:o}, s:o}", "response", "status_code", status,
                               "request_id", request, "body", body, "error", error);
    int rc = object ? json_write_line(object, &rest, err) : err_no_memory(err, "a line of a batch");
    if (rc == 0)
        rc = buf_addf(line, err, "{\"id\":\"batch_req_%llu\",\"custom_id\":%s,%s", n, id ? id : "null",
                      rest.data + 1);
    return rc;
}

int openai_batch_line(const struct openai_answer *a, json_t *body, struct buf *line, struct err *err)
{
    return body ? put_line(a->id, a->number, OK, body, json_null(), line, err) : -1;
}

int openai_batch_failure(const char *id, uint64_t number, const struct err *why, struct buf *line,
                         struct err *err)
{
    const bool ended = why->code == ERR_INTERRUPTED || why->code == ERR_NO_MEMORY;
    const char *type = ended ? "server_error" : "invalid_request_error";
    AUTO(json_auto) json_t *message = line_error(number, why);
    json_t *body = json_pack("{s:{s:O, s:s, s:n, s:s}}", "error", "message", message, "type", type,
                             "param", "code", type);
    json_t *error = json_pack("{s:s, s:O}", "code", type, "message", message);
    return put_line(id, number, ended ? SERVER_ERROR : BAD_REQUEST, body, error, line, err);
}
