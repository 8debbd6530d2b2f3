/* Answers in OpenAI's form: chat completions and completions, chunks of them, log-probabilities, errors, and lines of
 * batches. */
#include "serve/openai.h"

#include "report/table.h"
#include "serve/lines.h"
#include "text/tools/tool_call.h"

enum { HASH_SHOWN = 8 }; /* bytes */

/* OpenAI has no name for answers that were cancelled: they are not complete. */
static const char *finish_reason(enum gen_finish finish, const struct openai_said *said)
{
    if (said->in_call)
        return "length"; /* in a call */
    return finish != FINISHED_EOS && finish != FINISHED_STOP ? "length"
           : said->parts && said->parts->calls               ? "tool_calls"
                                                             : "stop";
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

/* ---- choices ---- */

/* A choice; takes over `said`, which is its message, delta or text, and `logprobs`. `finish`: NULL if it goes on. */
static json_t *make_choice(size_t index, const char *name, json_t *said, json_t *logprobs,
                           const char *finish, struct err *err)
{
    return json_or_null(json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)index, name, said,
                                  "logprobs", logprobs, "finish_reason", finish),
                        0, err);
}

static json_t *logprobs_or_null(const struct tokenizer *tok, bool chat, const struct gen_result *result,
                                struct logprob_form form, struct err *err)
{
    return result->n_best && result->n_ids ? openai_logprobs(tok, chat, result, form, err)
                                           : json_null();
}

/* Texts from `from` on; NULL if there is none. */
static json_t *rest_of(const struct buf *text, size_t from)
{
    return text->len > from ? json_text(text->data + from, text->len - from) : NULL;
}

json_t *openai_choice(const struct tokenizer *tok, bool chat, size_t index,
                      const struct gen_result *result, const struct openai_said *said,
                      struct logprob_form form, struct err *err)
{
    const struct tool_answer *parts = said->parts;
    json_t *logprobs = logprobs_or_null(tok, chat, result, form, err);
    json_t *text = !parts               ? json_text(result->text, result->text_len)
                   : parts->content.len ? rest_of(&parts->content, 0)
                   : parts->calls       ? json_null()
                                        : json_string("");
    json_t *message = text;
    if (chat)
        message = json_pack("{s:s, s:o*, s:o, s:O*, s:n}", "role", "assistant", "reasoning_content",
                            parts ? rest_of(&parts->reasoning, 0) : NULL, "content", text, "tool_calls",
                            parts ? parts->calls : NULL, "refusal");
    return make_choice(index, chat ? "message" : "text", message, logprobs,
                       finish_reason(result->finish, said), err);
}

/* Appends what is new of call number `said->calls` to a list: all of it, or the rest of its arguments, text[len]. */
static int push_call(const struct openai_said *said, const char *id, const char *name, const char *text,
                     size_t len, json_t *list, struct err *err)
{
    const json_int_t index = (json_int_t)said->calls;
    json_t *arguments = json_text(text + said->arguments, len - said->arguments);
    if (!said->in_call)
        return json_push(list,
                         json_pack("{s:I, s:o, s:s, s:{s:o, s:o}}", "index", index, "id",
                                   json_text(id, strlen(id)), "type", "function", "function", "name",
                                   json_text(name, strlen(name)), "arguments", arguments),
                         err);
    if (len > said->arguments)
        return json_push(
            list, json_pack("{s:I, s:{s:o}}", "index", index, "function", "arguments", arguments), err);
    json_decref(arguments);
    return 0;
}

/* Adds what is new of calls to a delta. Arguments of a call that is certain are said while they are generated. */
static int put_new_calls(struct openai_said *said, json_t *delta, struct err *err)
{
    const struct tool_answer *p = said->parts;
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "tool calls");
    for (; said->calls < json_array_size(p->calls) && rc == 0; said->calls++) {
        const json_t *call = json_array_get(p->calls, said->calls),
                     *function = json_object_get(call, "function"),
                     *arguments = json_object_get(function, "arguments");
        rc = push_call(said, json_string_value(json_object_get(call, "id")), tool_name(call),
                       json_string_value(arguments), json_string_length(arguments), list, err);
        said->in_call = false;
        said->arguments = 0;
    }
    if (rc == 0 && tool_answer_in_call(p)) {
        rc = push_call(said, buf_text(&p->parser.id), buf_text(&p->parser.name),
                       buf_text(&p->arguments), p->arguments.len, list, err);
        said->in_call = true;
        said->arguments = p->arguments.len;
    }
    if (rc == 0 && json_array_size(list))
        return json_put(delta, "tool_calls", list, err);
    json_decref(list);
    return rc;
}

bool openai_has_more(const struct openai_said *said, const struct gen_result *more)
{
    const struct tool_answer *p = said->parts;
    return (more->n_best && more->n_ids) ||
           (p ? p->content.len > said->content || p->reasoning.len > said->reasoning ||
                    json_array_size(p->calls) > said->calls ||
                    (tool_answer_in_call(p) && (!said->in_call || p->arguments.len > said->arguments))
              : more->text_len > 0);
}

/* A call that was begun and is cut off is not said again as text. */
static void skip_cut_call(struct openai_said *said)
{
    const struct tool_answer *p = said->parts;
    if (said->in_call && !tool_answer_in_call(p) && json_array_size(p->calls) == said->calls)
        said->content = p->content.len;
}

json_t *openai_piece(const struct tokenizer *tok, bool chat, size_t index,
                     const struct gen_result *more, struct openai_said *said, bool last,
                     struct logprob_form form, struct err *err)
{
    const struct tool_answer *p = said->parts;
    json_t *logprobs = logprobs_or_null(tok, chat, more, form, err);
    if (p)
        skip_cut_call(said);
    json_t *text = p                         ? rest_of(&p->content, said->content)
                   : more->text_len || !chat ? json_text(more->text, more->text_len)
                                             : NULL;
    json_t *piece = text;
    if (chat)
        piece = json_pack("{s:s*, s:o*, s:o*}", "role", said->begun ? NULL : "assistant",
                          "reasoning_content", p ? rest_of(&p->reasoning, said->reasoning) : NULL,
                          "content", text);
    if (p && piece && put_new_calls(said, piece, err) < 0) {
        json_decref(piece);
        piece = NULL;
    }
    said->begun = true;
    if (p) {
        said->content = p->content.len;
        said->reasoning = p->reasoning.len;
    }
    return make_choice(index, chat ? "delta" : "text", piece, logprobs,
                       last ? finish_reason(more->finish, said) : NULL, err);
}

/* ---- answers ---- */

static json_t *usage_json(const struct openai_answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)a->n_prompt,
                     "completion_tokens", (json_int_t)a->n_generated, "total_tokens",
                     (json_int_t)(a->n_prompt + a->n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)a->n_cached);
}

/* The object of an answer or of a chunk of one; takes over `choices`, where NULL is an error that `err` has. */
static json_t *answer_json(const struct openai_answer *a, bool chunk, json_t *choices, bool usage,
                           struct err *err)
{
    const char *kind = !a->chat ? "text_completion"
                       : chunk  ? "chat.completion.chunk"
                                : "chat.completion";
    char id[40], hex[2 * HASH_SHOWN + 1];
    if (!choices)
        return NULL;
    snprintf(id, sizeof id, "%s-%llu", a->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)a->number + 1);
    hash_hex(&a->logits_hash, HASH_SHOWN, hex);
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:o, s:o, s:o*, s:o*, s:s*}", "id", a->id ? a->id : id, "object", kind,
        "created", (json_int_t)a->created, "model", json_text(a->model, strlen(a->model)), "choices",
        choices, "usage", usage ? usage_json(a) : NULL, "seed",
        a->ended && a->seed ? json_whole(*a->seed) : NULL, "logits_hash", a->ended ? hex : NULL);
    return json_or_null(object, 0, err);
}

/* Appends an object, which is taken over, as a line, behind members that are text already; "": none. NULL: no memory. */
static int put_object(const char *before, json_t *object, struct buf *line, struct err *err)
{
    AUTO(buf_release) struct buf rest = {0};
    const int rc = object ? json_write_line(object, &rest, err) : err_no_memory(err, "an answer");
    json_decref(object);
    return rc < 0 ? -1 : buf_addf(line, err, "{%s%s", before, rest.data + 1);
}

/* Appends a line of a batch; takes over `body` and `error`. */
static int put_line(const struct openai_answer *a, int status, json_t *body, json_t *error,
                    struct buf *line, struct err *err)
{
    const unsigned long long n = a->number + 1;
    AUTO(buf_release) struct buf ids = {0};
    char request[40];
    snprintf(request, sizeof request, "req-%llu", n);
    json_t *object = json_pack("{s:{s:i, s:s, s:o}, s:o}", "response", "status_code", status,
                               "request_id", request, "body", body, "error", error);
    if (buf_addf(&ids, err, "\"id\":\"batch_req_%llu\",\"custom_id\":%s,", n,
                 a->custom_id ? a->custom_id : "null") == 0)
        return put_object(ids.data, object, line, err);
    json_decref(object);
    return -1;
}

/* Appends the line of an answer, alone or in a batch; takes over `body`, where NULL is an error that `err` has. */
static int put_body(const struct openai_answer *a, json_t *body, struct buf *line, struct err *err)
{
    return !body      ? -1
           : a->batch ? put_line(a, OPENAI_OK, body, json_null(), line, err)
                      : put_object("", body, line, err);
}

int openai_put(const struct openai_answer *a, json_t *choices, struct buf *line, struct err *err)
{
    return put_body(a, answer_json(a, false, choices, true, err), line, err);
}

int openai_put_chunk(const struct openai_answer *a, json_t *choices, bool usage, struct buf *line,
                     struct err *err)
{
    json_t *chunk = answer_json(a, true, choices, usage, err);
    return chunk ? put_object("", chunk, line, err) : -1;
}

/* ---- embeddings and relevance ---- */

json_t *openai_embedding(size_t index, const float *embedding, size_t n, bool base64, struct err *err)
{
    enum { VARIANT = sodium_base64_VARIANT_ORIGINAL };
    const size_t bytes = n * sizeof *embedding, room = sodium_base64_ENCODED_LEN(bytes, VARIANT);
    AUTO(free_auto) char *text = base64 ? malloc(room) : NULL;
    if (text)
        sodium_bin2base64(text, room, (const unsigned char *)embedding, bytes, VARIANT);
    json_t *values = text ? json_string(text) : base64 ? NULL : json_floats(embedding, n);
    return json_or_null(json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)index,
                                  "embedding", values),
                        0, err);
}

int openai_put_list(const struct openai_answer *a, const char *name, json_t *list, struct buf *line,
                    struct err *err)
{
    const json_int_t n = (json_int_t)a->n_prompt;
    json_t *body = json_pack("{s:s, s:o, s:o, s:{s:I, s:I}}", "object", "list", name, list, "model",
                             json_text(a->model, strlen(a->model)), "usage", "prompt_tokens", n,
                             "total_tokens", n);
    return put_body(a, json_or_null(body, list ? 0 : -1, err), line, err);
}

/* ---- errors ---- */

int openai_status(const struct err *why)
{
    static const int status[] = {
        [ERR_FAILED] = OPENAI_SERVER_ERROR,     [ERR_INVALID] = OPENAI_BAD_REQUEST,
        [ERR_NO_MEMORY] = OPENAI_SERVER_ERROR,  [ERR_FULL] = OPENAI_BAD_REQUEST,
        [ERR_INTERRUPTED] = OPENAI_UNAVAILABLE, [ERR_BUSY] = OPENAI_UNAVAILABLE};
    return status[why->code];
}

/* The type of errors with a status. */
static const char *error_type(int status)
{
    return status >= OPENAI_SERVER_ERROR ? "server_error"
           : status == 401               ? "authentication_error"
                                         : "invalid_request_error";
}

/* {"error": {"message", "type", "param", "code"}}; takes over `message`. */
static json_t *error_json(int status, const char *code, json_t *message)
{
    const char *type = error_type(status);
    return json_pack("{s:{s:o, s:s, s:n, s:s}}", "error", "message", message, "type", type, "param",
                     "code", code);
}

int openai_put_error(int status, const char *message, struct buf *line, struct err *err)
{
    json_t *text = json_text(message, strlen(message));
    return put_object("", error_json(status, error_type(status), text), line, err);
}

int openai_put_failure(const struct openai_answer *a, const struct err *why, struct buf *line,
                       struct err *err)
{
    const int status = openai_status(why);
    const char *code = why->code == ERR_FULL ? "context_length_exceeded" : error_type(status);
    AUTO(buf_release) struct buf id = {0};
    AUTO(json_auto)
    json_t *message =
        a->unnumbered ? json_text(why->text, strlen(why->text)) : line_error(a->number, why);
    if (!a->unnumbered && a->custom_id && buf_addf(&id, err, "\"id\":%s,", a->custom_id) < 0)
        return -1;
    json_t *body = error_json(status, code, json_incref(message));
    return a->batch ? put_line(a, status, body,
                               json_pack("{s:s, s:O}", "code", code, "message", message), line, err)
                    : put_object(buf_text(&id), body, line, err);
}
