/* Embeddings of texts that are read line by line. */
#include "serve/lines/embed_lines.h"

#include <stdio.h>
#include <stdlib.h>

#include "serve/result.h"
#include "serve/serve.h"

struct embed_run {
    struct embed_lines *job;
    struct text_line *first;
};

/* Adds the shortest decimal numbers that read back as the same floats. */
static int put_embedding(json_t *object, const float *embedding, size_t n, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_set(err, "out of memory for an embedding");
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

static int put_members(const struct embed_run *run, json_t *object, const struct text_line *line,
                       const float *embedding, const char *error, struct err *err)
{
    const size_t hidden = session_model(run->job->session)->config.hidden;
    if (json_put(object, "index", json_integer((json_int_t)line->number), err) < 0 ||
        json_put(object, "tokens", json_integer((json_int_t)line->ids.len), err) < 0 ||
        (embedding && put_embedding(object, embedding, hidden, err) < 0))
        return -1;
    return json_put(object, "error", error ? line_error(line->number, error) : json_null(), err);
}

/* Writes the line's result and frees the line; if out of memory, the line stays in flight. */
static int finish_line(struct embed_run *run, struct text_line *line, const float *embedding,
                       const char *error, struct err *err)
{
    json_t *object = json_object();
    struct buf text = {0};
    int rc = put_members(run, object, line, embedding, error, err);
    if (rc == 0)
        rc = text_line_format(line, object, &text, err);
    json_decref(object);
    if (rc < 0) {
        buf_release(&text);
        return -1;
    }
    run->job->n_failed += error != NULL;
    rc = results_put(run->job->results, line->number, &text, err);
    text_line_free(line);
    return rc;
}

static int read_line(const struct embed_lines *job, struct text_line *line, const char *bytes,
                     size_t len, struct err *err)
{
    if (job->json)
        return text_line_parse(&job->options, bytes, len, &line->root, &line->ids, err);
    return lines_check(bytes, err) < 0 ? -1
                                       : serve_encode(job->options.model, bytes, len, true,
                                                      job->options.parse_special, &line->ids, err);
}

static int next_text(void *arg, bool wait, struct embed_text *text, struct err *err)
{
    struct embed_run *run = arg;
    const char *bytes;
    size_t len;
    for (;;) {
        const int got = lines_next(run->job->lines, wait, &bytes, &len, err);
        if (got != GEN_REQUEST)
            return got;
        if (!run->job->json && bytes && !len)
            continue;
        struct err why;
        if (results_expect(run->job->results, err) < 0)
            return -1;
        struct text_line *line = text_line_add(&run->first, run->job->n_lines, err);
        if (!line)
            return -1;
        run->job->n_lines++;
        if (read_line(run->job, line, bytes, len, &why) == 0) {
            *text = (struct embed_text){line->ids.id, line->ids.len, line};
            return GEN_REQUEST;
        }
        if (finish_line(run, line, NULL, why.text, err) < 0)
            return -1;
    }
}

static int take(void *arg, const struct embed_text *text, const float *embedding, const char *error,
                struct err *err)
{
    return finish_line(arg, text->user, embedding, error, err);
}

int embed_lines(struct embed_lines *job, struct embed_stats *stats, struct err *err)
{
    struct embed_run run = {.job = job};
    const struct embed_callbacks callbacks = {next_text, take, &run};
    const int rc = embed_texts(job->session, job->pooling, job->normalize, &callbacks,
                               job->lines->source.interrupted, stats, err);
    struct err ignored;
    char why[sizeof ignored.text + 32];
    snprintf(why, sizeof why, "the run ended: %s", rc < 0 ? err->text : "");
    for (struct text_line *line = run.first, *after; line; line = after) {
        after = line->next;
        if (finish_line(&run, line, NULL, why, &ignored) < 0)
            text_line_free(line);
    }
    if (rc < 0)
        (void)!results_end(job->results, &ignored);
    return rc;
}
