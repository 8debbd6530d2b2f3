/* Log-probabilities in the form of OpenAI's chat completions and completions. */
#include "serve/openai_logprobs.h"

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
    struct buf text = {0}, bytes = {0};
    json_t *object = json_object();
    int rc = tokenizer_piece_printable(tok, lp->id, &text, err);
    if (rc == 0)
        rc = tokenizer_piece(tok, lp->id, &bytes, err);
    if (rc == 0)
        rc = json_put(object, "token", json_text(buf_text(&text), text.len), err);
    if (rc == 0)
        rc = json_put(object, "logprob", json_real((double)lp->logprob), err);
    if (rc == 0)
        rc = json_put(object, "bytes", bytes_json(&bytes, err), err);
    buf_release(&text);
    buf_release(&bytes);
    return json_or_null(object, rc, err);
}

/* A token with its alternatives. */
static json_t *position_json(const struct tokenizer *tok, const struct logprob *at, size_t top,
                             struct err *err)
{
    json_t *list = json_array(), *token = token_json(tok, at, err);
    int rc = list && token ? 0 : err_no_memory(err, "log-probabilities");
    for (size_t i = 0; i < top && rc == 0; i++)
        rc = json_push(list, token_json(tok, at + 1 + i, err), err);
    if (rc < 0) {
        json_decref(list);
        json_decref(token);
        return NULL;
    }
    return json_or_null(token, json_put(token, "top_logprobs", list, err), err);
}

json_t *openai_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n, size_t n_best,
                        size_t top, struct err *err)
{
    json_t *list = json_array(), *object = json_object();
    int rc = list && object ? 0 : err_no_memory(err, "log-probabilities");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = json_push(list, position_json(tok, at + i * (n_best + 1), top, err), err);
    if (rc < 0) {
        json_decref(list);
        json_decref(object);
        return NULL;
    }
    return json_or_null(object, json_put(object, "content", list, err), err);
}

/* ---- completions ---- */

static int put_alternatives(const struct tokenizer *tok, const struct logprob *best, size_t n,
                            json_t *list, struct err *err)
{
    json_t *object = json_object();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct buf text = {0};
        rc = tokenizer_piece_printable(tok, best[i].id, &text, err);
        if (rc == 0)
            rc = json_put(object, buf_text(&text), json_real((double)best[i].logprob), err);
        buf_release(&text);
    }
    return json_push(list, json_or_null(object, rc, err), err);
}

json_t *openai_text_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n,
                             size_t n_best, size_t top, struct err *err)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *best = json_array(),
           *offsets = json_array();
    size_t offset = 0;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++, at += n_best + 1) {
        struct buf text = {0};
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
        buf_release(&text);
    }
    json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                               "top_logprobs", best, "text_offset", offsets);
    return json_or_null(object, rc, err);
}
