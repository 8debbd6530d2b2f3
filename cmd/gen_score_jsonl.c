/* bmc-gen --score --jsonl: a text per line in, its log-probabilities in a line out, in the same order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "decode/request.h"
#include "decode/result.h"
#include "gen.h"
#include "gen_jsonl.h"
#include "gen_lines.h"

/* A line of the input. Lines stand in a list, in their order, until their result was written. */
struct line {
    struct line *next;
    uint64_t number;
    json_t *root;
    const json_t *id; /* borrowed from root, or NULL */
    struct ids ids;
    json_t *logprobs; /* of the tokens so far, unless --summary */
    struct buf result;
    bool ready;
};

struct score_jsonl {
    struct gen *gen;
    struct lines in;
    struct line *first, **end; /* the list, and where the next line goes */
    uint64_t n_lines, n_failed;
    struct cli_progress progress;
};

/* All but the result. */
static void line_clear(struct line *line)
{
    json_decref(line->root);
    json_decref(line->logprobs);
    ids_release(&line->ids);
    line->root = line->logprobs = NULL;
    line->id = NULL;
}

static void line_free(struct line *line)
{
    line_clear(line);
    buf_release(&line->result);
    free(line);
}

static struct line *new_line(struct score_jsonl *job, struct err *err)
{
    struct line *line = calloc(1, sizeof *line);
    if (line && !job->gen->options->summary && !(line->logprobs = json_array())) {
        free(line);
        line = NULL;
    }
    if (!line) {
        err_set(err, "out of memory for a line");
        return NULL;
    }
    line->number = job->n_lines++;
    *job->end = line;
    job->end = &line->next;
    return line;
}

/* ---- in ---- */

static int check_members(const struct line *line, struct err *err)
{
    static const char *const known[] = {"id", "prompt", "text", "ids", "parse_special"};
    const char *name;
    json_t *value;
    json_object_foreach(line->root, name, value)
    {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(name, known[i]) != 0)
            i++;
        if (i == ARRAY_LEN(known))
            return request_unknown(name, known, ARRAY_LEN(known), err);
    }
    return 0;
}

/* null is as good as nothing. */
static const json_t *given(const struct line *line, const char *name)
{
    const json_t *value = json_object_get(line->root, name);
    return json_is_null(value) ? NULL : value;
}

static int parse_line(const struct score_jsonl *job, struct line *line, const char *bytes, size_t len,
                      struct err *err)
{
    if (lines_check(bytes, err) < 0 || request_line(bytes, len, &line->root, err) < 0)
        return -1;
    line->id = json_object_get(line->root, "id");
    const json_t *prompt = given(line, "prompt"), *text = given(line, "text"),
                 *ids = given(line, "ids"), *special = given(line, "parse_special");
    if (!job->gen->options->lenient && check_members(line, err) < 0)
        return -1;
    if ((prompt != NULL) + (text != NULL) + (ids != NULL) != 1)
        return err_set(err, "exactly one of \"text\", \"prompt\" and \"ids\" is expected");
    if (ids)
        return request_ids_of(ids, &line->ids, err);
    text = text ? text : prompt;
    if (!json_is_string(text))
        return err_set(err, "\"%s\" is %s, a string is expected", prompt ? "prompt" : "text",
                       json_type_name(text));
    if (special && !json_is_boolean(special))
        return err_set(err, "\"parse_special\" is %s, true or false is expected",
                       json_type_name(special));
    return gen_encode(job->gen, json_string_value(text), json_string_length(text), true,
                      special ? json_is_true(special) : !job->gen->options->no_parse_special,
                      &line->ids, err);
}

/* ---- out ---- */

static int put_members(json_t *object, const struct line *line, const struct score_result *result,
                       struct err *err)
{
    if (gen_put_score(object, result->tokens, result->sum_logprob, false, err) < 0 ||
        json_put(object, "sum_logprob", json_real(result->sum_logprob), err) < 0 ||
        json_put(object, "error", result->error ? line_error(line->number, result->error) : json_null(),
                 err) < 0)
        return -1;
    return line->logprobs ? json_put(object, "logprobs", json_incref(line->logprobs), err) : 0;
}

/* The id as it came, to the last digit, then the members. */
static int make_result(struct line *line, const struct score_result *result, struct err *err)
{
    struct buf rest = {0}, id = {0};
    json_t *object = json_object();
    int rc = object ? 0 : err_set(err, "out of memory for a result");
    if (rc == 0 && line->id)
        rc = json_spell(line->id, JSON_COMPACT | JSON_REAL_PRECISION(17), &id, err);
    if (rc == 0 && (rc = put_members(object, line, result, err)) == 0 &&
        (rc = json_write_line(object, &rest, err)) == 0)
        rc = buf_addf(&line->result, err, "{\"id\":%s,%s", id.len ? id.data : "null", rest.data + 1);
    buf_release(&id);
    json_decref(object);
    buf_release(&rest);
    return rc;
}

/* Results whose turn it is, and with --unordered the line's own, go out. */
static int put_ready(struct score_jsonl *job, struct line *line, struct err *err)
{
    int rc = 0;
    if (job->gen->options->unordered) {
        rc = gen_put(&line->result, err);
        buf_release(&line->result);
    }
    while (rc == 0 && job->first && job->first->ready) {
        struct line *first = job->first;
        rc = gen_put(&first->result, err);
        job->first = first->next;
        line_free(first);
    }
    if (!job->first)
        job->end = &job->first;
    if (rc == 0 && fflush(stdout) != 0)
        rc = err_errno(err, "cannot write to standard output");
    return rc;
}

static int finish_line(struct score_jsonl *job, struct line *line, const struct score_result *result,
                       struct err *err)
{
    job->n_failed += result->error != NULL;
    if (make_result(line, result, err) < 0)
        return -1;
    line_clear(line);
    line->ready = true;
    return put_ready(job, line, err);
}

/* ---- callbacks ---- */

/* Bad lines are answered here, and the next one is read. */
static int next(void *arg, bool wait, struct score_text *text, struct err *err)
{
    struct score_jsonl *job = arg;
    const char *bytes;
    size_t len;
    for (;;) {
        const int got = lines_next(&job->in, wait, &bytes, &len, err);
        if (got != GEN_REQUEST)
            return got;
        struct err why;
        struct line *line = new_line(job, err);
        if (!line)
            return -1;
        if (parse_line(job, line, bytes, len, &why) == 0) {
            *text = (struct score_text){line->ids.id, line->ids.len, line};
            return GEN_REQUEST;
        }
        const struct score_result bad = {.error = why.text};
        if (finish_line(job, line, &bad, err) < 0)
            return -1;
    }
}

static int take_token(void *arg, const struct score_text *text, size_t pos, double logprob,
                      struct err *err)
{
    struct score_jsonl *job = arg;
    struct line *line = text->user;
    if (!line->logprobs)
        return 0;
    json_t *piece = gen_piece(job->gen, text->id[pos], err);
    json_t *token = piece ? json_pack("{s:I, s:O, s:o}", "id", (json_int_t)text->id[pos], "piece",
                                      piece, "logprob", pos ? json_real(logprob) : json_null())
                          : NULL;
    json_decref(piece);
    return piece ? json_push(line->logprobs, token, err) : -1;
}

static int done(void *arg, const struct score_result *result, struct err *err)
{
    struct score_jsonl *job = arg;
    const int rc = finish_line(job, result->text->user, result, err);
    if (job->in.total_bytes && rc == 0)
        cli_progress(&job->progress, size_min(job->in.done_bytes, job->in.total_bytes),
                     job->in.total_bytes);
    return rc;
}

/* ---- the job ---- */

static int score_lines(struct score_jsonl *job, struct err *err)
{
    struct gen *gen = job->gen;
    const struct gen_options *o = gen->options;
    const struct score_callbacks callbacks = {next, take_token, done, job};
    if (gen_open_session(gen, o->batch ? o->batch : JSONL_BATCH, gen->model->config.context, err) < 0)
        return -1;
    cli_progress_begin(&job->progress, "texts");
    if (gen->options->quiet || isatty(STDOUT_FILENO))
        job->progress.hidden = true; /* the results show it */
    const int rc =
        score_texts(&gen->session, o->stride, &callbacks, &cli_interrupted, &gen->score, err);
    cli_progress_end(&job->progress);
    if (rc < 0)
        return -1;
    const struct gen_stats stats = {.sequences = gen->score.texts,
                                    .prefill_tokens = gen->score.prefill_tokens,
                                    .prefill_ms = gen->score.prefill_ms};
    if (gen_report(gen, &stats, err) < 0)
        return -1;
    return lines_verdict(job->n_failed, job->n_lines, "lines", err);
}

/* The run ended by an error: results that wait for earlier ones go out, too, and lines under way say what happened. */
static void write_rest(struct score_jsonl *job, const char *why)
{
    struct err ignored; /* the run's error is told, not this one, which may well be the same */
    char text[sizeof ignored.text + 32];
    const struct score_result ended = {.error = text};
    snprintf(text, sizeof text, "the run ended: %s", why);
    for (struct line *line = job->first; line; line = line->next)
        if (!line->ready) {
            json_decref(line->logprobs);
            line->logprobs = NULL;
            if (make_result(line, &ended, &ignored) < 0)
                buf_clear(&line->result);
        }
    for (struct line *line = job->first; line && gen_put(&line->result, &ignored) == 0;)
        line = line->next;
}

static void release_lines(struct score_jsonl *job)
{
    for (struct line *line = job->first, *after; line; line = after) {
        after = line->next;
        line_free(line);
    }
}

int gen_score_jsonl(struct gen *gen, struct err *err)
{
    struct score_jsonl job = {.gen = gen};
    job.end = &job.first;
    gen_hint_batch(gen, 0);
    gen_hint_terminal(gen, "texts, a JSON object per line,");
    if (lines_open(&job.in, gen->options->file, err) < 0)
        return -1;
    const int rc = score_lines(&job, err);
    if (rc < 0)
        write_rest(&job, err->text);
    release_lines(&job);
    lines_close(&job.in);
    return rc;
}
