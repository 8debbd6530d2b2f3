/* Untrusted request lines, and bodies of HTTP requests: accepted ones are in range and survive writing; rejected ones
 * have an answer, in OpenAI's form, too. Blanks in front choose how a line is read. */
#include <math.h>
#include <stdlib.h>

#include "serve/openai.h"
#include "serve/request.h"
#include "serve/result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool so)
{
    if (!so)
        abort();
}

static void check_ranges(const struct request *r)
{
    const struct sampler_options *s = &r->sampling;
    must(r->gen.sampling == s && fabs(s->temp) <= 1e9 && s->top_p >= 0 && s->top_p <= 1);
    must(s->min_p >= 0 && s->min_p <= 1 && s->repeat_penalty >= 1e-3 && s->repeat_penalty <= 1e3);
    must(fabs(s->presence_penalty) <= 1e3 && fabs(s->frequency_penalty) <= 1e3);
    must(r->gen.logprobs <= 1000 && r->gen.prompt_logprobs <= 1000);
    must(r->top_logprobs <= r->gen.logprobs);
    for (size_t i = 0; i < r->gen.stop.n; i++)
        must(r->gen.stop.text[i][0]);
    for (size_t i = 0; i < s->n_biases; i++)
        must(isfinite(s->bias[i].bias));
}

/* The answer to a bad line is one line of JSON with the id. */
static void check_answer(const struct request *r, const struct err *why)
{
    struct buf line = {0};
    struct err err;
    json_error_t bad;
    char *id = r->id ? json_dumps(r->id, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    must(failure_line(id, 7, why, &line, &err) == 0 && line.data[line.len - 1] == '\n');
    json_t *answer = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &bad);
    must(answer && json_string_length(json_object_get(answer, "error")) < 2 * sizeof err.text);
    must(!r->id || json_equal(r->id, json_object_get(answer, "id")));
    json_decref(answer);
    buf_release(&line);
    free(id);
}

/* The answer in OpenAI's form is an object with the sentence, or a line of a batch with that. */
static void check_openai(const struct request *r, const struct err *why, bool service)
{
    struct buf line = {0};
    struct err err;
    json_error_t bad;
    char *id = r->id ? json_dumps(r->id, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    const struct openai_answer answer = {.custom_id = id, .batch = r->batch, .unnumbered = service};
    must(openai_put_failure(&answer, why, &line, &err) == 0 && line.data[line.len - 1] == '\n');
    json_t *object = json_loadb(line.data, line.len, JSON_ALLOW_NUL, &bad);
    const json_t *error = json_object_get(object, "error");
    must(json_string_length(json_object_get(error, "message")) > 0);
    must(!r->id || service ||
         json_equal(r->id, json_object_get(object, r->batch ? "custom_id" : "id")));
    json_decref(object);
    buf_release(&line);
    free(id);
}

/* A body of a request for embeddings is parsed only. */
static void try_parsing(const uint8_t *data, size_t size, unsigned flags)
{
    struct request r;
    struct err err;
    if (request_parse(&r, (const char *)data, size, flags, &err) < 0)
        check_openai(&r, &err, true);
    request_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
    struct request r;
    struct ids ids = {0};
    struct err err;
    size_t blanks = 0;
    while (blanks < size && data[blanks] == ' ')
        blanks++;
    const unsigned flags = blanks & (REQUEST_LENIENT | REQUEST_OPENAI);
    try_parsing(data, size, flags);
    int rc = request_open(&r, (const char *)data, size, flags, &err);
    if (rc == 0 && flags & REQUEST_OPENAI)
        rc = request_check_url(&r, urls[blanks / 4 % ARRAY_LEN(urls)], &err);
    r.sampling = (struct sampler_options){.top_p = 1, .repeat_penalty = 1};
    if (rc == 0)
        rc = request_apply(&r, &err);
    if (rc == 0)
        rc = request_ids(&r, &ids, &err);
    if (rc == 0)
        check_ranges(&r);
    else {
        check_answer(&r, &err);
        check_openai(&r, &err, flags & REQUEST_OPENAI);
    }
    ids_release(&ids);
    request_close(&r);
    return 0;
}
