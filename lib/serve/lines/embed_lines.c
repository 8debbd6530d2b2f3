/* Embeddings of texts that are read line by line. */
#include "serve/lines/embed_lines.h"

#include <stdio.h>
#include <stdlib.h>

#include "serve/result.h"
#include "serve/serve.h"

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

static int put_members(const struct embed_lines *job, json_t *object, const struct text_line *line,
                       const float *embedding, const struct err *error, struct err *err)
{
    const size_t hidden = session_model(job->session)->config.hidden;
    if (json_put(object, "index", json_integer((json_int_t)line->index), err) < 0 ||
        json_put(object, "tokens", json_integer((json_int_t)line->ids.len), err) < 0 ||
        (embedding && put_embedding(object, embedding, hidden, err) < 0))
        return -1;
    return json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
}

/* Writes the line's result and frees the line; if out of memory, the line stays in flight. */
static int finish(struct embed_lines *job, struct text_line *line, const float *embedding,
                  const struct err *error, struct err *err)
{
    json_t *object = json_object();
    if (put_members(job, object, line, embedding, error, err) == 0)
        return text_lines_finish(&job->texts, line, object, error != NULL, err);
    json_decref(object);
    return -1;
}

static int next_text(void *arg, bool wait, struct embed_text *text, struct err *err)
{
    struct embed_lines *job = arg;
    struct text_line *line;
    struct err why;
    bool valid;
    for (;;) {
        const int got = text_lines_next(&job->texts, wait, &line, &valid, &why, err);
        if (got != GEN_REQUEST)
            return got;
        if (valid) {
            *text = (struct embed_text){line->ids.id, line->ids.len, line};
            return GEN_REQUEST;
        }
        if (finish(job, line, NULL, &why, err) < 0)
            return -1;
    }
}

static int take(void *arg, const struct embed_text *text, const float *embedding,
                const struct err *error, struct err *err)
{
    return finish(arg, text->user, embedding, error, err);
}

int embed_lines(struct embed_lines *job, struct embed_stats *stats, struct err *err)
{
    const struct embed_callbacks callbacks = {next_text, take, job};
    const int rc = embed_texts(job->session, job->pooling, job->normalize, &callbacks,
                               job->texts.lines->source.interrupted, stats, err);
    struct err ignored, why = rc < 0 ? *err : err_interrupted;
    err_prefix(&why, "the run ended");
    for (struct text_line *line; (line = job->texts.first);)
        if (finish(job, line, NULL, &why, &ignored) < 0 && job->texts.first == line)
            text_line_free(line);
    if (rc < 0)
        (void)!results_end(job->texts.results, &ignored);
    return rc;
}
