/* Answers in OpenAI's form: bodies of chat completions and completions, and lines of batches. */
#include "serve/openai_answer.h"

#include <stdio.h>
#include <string.h>

#include "report/table.h"
#include "serve/openai_logprobs.h"

enum { OK = 200, BAD_REQUEST = 400, SERVER_ERROR = 500 };

/* OpenAI has no name for answers that were cancelled: they are not complete. */
static const char *finish_reason(enum gen_finish finish)
{
    return finish == FINISHED_EOS || finish == FINISHED_STOP ? "stop" : "length";
}

static json_t *text_of(const struct gen_result *result)
{
    return json_text(result->text, result->text_len);
}

static json_t *choice_logprobs(const struct tokenizer *tok, bool chat, const struct gen_result *result,
                               struct logprob_form form, struct err *err)
{
    const size_t top = form.openai ? size_min(form.n_openai, result->n_best) : result->n_best;
    if (!result->n_best)
        return json_null();
    return chat ? openai_logprobs(tok, result->logprobs, result->n_ids, result->n_best, top, err)
                : openai_text_logprobs(tok, result->logprobs, result->n_ids, result->n_best, top, err);
}

json_t *openai_choice(const struct tokenizer *tok, bool chat, size_t index,
                      const struct gen_result *result, struct logprob_form form, struct err *err)
{
    json_t *object = json_object();
    int rc = json_put(object, "index", json_integer((json_int_t)index), err);
    if (rc == 0)
        rc = chat ? json_put(object, "message",
                             json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                                       text_of(result), "refusal"),
                             err)
                  : json_put(object, "text", text_of(result), err);
    json_t *logprobs = rc == 0 ? choice_logprobs(tok, chat, result, form, err) : NULL;
    if (rc == 0)
        rc = logprobs ? json_put(object, "logprobs", logprobs, err) : -1;
    if (rc == 0)
        rc = json_put(object, "finish_reason", json_string(finish_reason(result->finish)), err);
    return json_or_null(object, rc, err);
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
    struct buf rest = {0};
    char request[40];
    snprintf(request, sizeof request, "req-%llu", n);
    json_t *object = json_pack("{s:{s:i, s:s, s:o}, s:o}", "response", "status_code", status,
                               "request_id", request, "body", body, "error", error);
    int rc = object ? json_write_line(object, &rest, err) : err_no_memory(err, "a line of a batch");
    if (rc == 0)
        rc = buf_addf(line, err, "{\"id\":\"batch_req_%llu\",\"custom_id\":%s,%s", n, id ? id : "null",
                      rest.data + 1);
    json_decref(object);
    buf_release(&rest);
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
    json_t *message = line_error(number, why);
    json_t *body = json_pack("{s:{s:O, s:s, s:n, s:s}}", "error", "message", message, "type", type,
                             "param", "code", type);
    json_t *error = json_pack("{s:s, s:O}", "code", type, "message", message);
    json_decref(message);
    return put_line(id, number, ended ? SERVER_ERROR : BAD_REQUEST, body, error, line, err);
}
