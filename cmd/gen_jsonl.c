/* bmc-gen --jsonl: a request per line in, a result per line out.
 *
 * Requests are read as places in the batch become free. Results wait until those of all earlier lines
 * are written, unless --unordered. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "gen.h"

/* One line's request, and what it owns. */
struct line {
    struct line *next, **link; /* among those under way */
    json_t *root;              /* the parsed line: stop strings point into it */
    json_t *id;                /* borrowed from root, or NULL */
    struct ids prompt;
    struct sampler_options sampling; /* of a sequence that is continued */
    char **stop;
};

/* A result that waits for its turn. */
struct waiting {
    struct buf text;
    bool ready;
};

struct jsonl_job {
    struct gen *gen;
    int in;
    struct buf input; /* bytes read, of which lines before `taken` are done with */
    size_t taken;
    bool input_ended;
    uint64_t n_lines;        /* read so far */
    struct line *lines;      /* under way */
    struct waiting *waiting; /* of lines first_waiting .. */
    size_t n_waiting, waiting_cap;
    uint64_t first_waiting;
};

static struct line *new_line(struct jsonl_job *job)
{
    struct line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->next = job->lines;
    line->link = &job->lines;
    if (line->next)
        line->next->link = &line->next;
    job->lines = line;
    return line;
}

static void line_free(struct line *line)
{
    if (!line)
        return;
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    json_decref(line->root);
    ids_release(&line->prompt);
    free(line->stop);
    free(line);
}

/* ---- out ---- */

static int put(const struct buf *text, struct err *err)
{
    fwrite(text->data, 1, text->len, stdout);
    return fflush(stdout) == 0 ? 0 : err_errno(err, "cannot write to standard output");
}

/* Writes all results whose turn it is. */
static int put_ready(struct jsonl_job *job, struct err *err)
{
    size_t n = 0;
    int rc = 0;
    while (n < job->n_waiting && job->waiting[n].ready && rc == 0) {
        rc = put(&job->waiting[n].text, err);
        buf_release(&job->waiting[n++].text);
    }
    job->n_waiting -= n;
    job->first_waiting += n;
    if (n)
        memmove(job->waiting, job->waiting + n, job->n_waiting * sizeof *job->waiting);
    return rc;
}

/* A name as it came, to the last digit. */
static char *dump_id(const json_t *id)
{
    return json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
}

/* The result's line: the id, then the object. */
static int make_line(const struct line *line, const json_t *object, struct buf *text, struct err *err)
{
    struct buf rest = {0}, id = {0};
    int rc = object ? json_write_line(object, &rest, err) : err_set(err, "out of memory for a result");
    if (rc == 0 && line && line->id)
        rc = json_spell(line->id, JSON_COMPACT | JSON_REAL_PRECISION(17), &id, err);
    if (rc == 0)
        rc = buf_addf(text, err, "{\"id\":%s,%s", id.len ? id.data : "null", rest.data + 1);
    buf_release(&id);
    buf_release(&rest);
    return rc;
}

static int write_result(struct jsonl_job *job, uint64_t number, const struct line *line, json_t *object,
                        struct err *err)
{
    struct buf text = {0};
    int rc = make_line(line, object, &text, err);
    json_decref(object);
    if (rc == 0 && job->gen->options->unordered) {
        rc = put(&text, err);
    } else if (rc == 0) {
        struct waiting *slot = &job->waiting[number - job->first_waiting];
        slot->text = text;
        slot->ready = true;
        return put_ready(job, err);
    }
    buf_release(&text);
    return rc;
}

/* A line that takes part in the order of results. */
static int announce_line(struct jsonl_job *job, struct err *err)
{
    if (job->gen->options->unordered)
        return 0;
    if (mem_grow(&job->waiting, &job->waiting_cap, job->n_waiting, sizeof *job->waiting, err) < 0)
        return -1;
    job->waiting[job->n_waiting++] = (struct waiting){0};
    return 0;
}

static int write_error(struct jsonl_job *job, uint64_t number, const struct line *line,
                       const char *error, struct err *err)
{
    char text[640];
    snprintf(text, sizeof text, "line %llu: %s", (unsigned long long)number + 1, error);
    return write_result(
        job, number, line,
        json_pack("{s:s, s:[], s:s, s:s}", "text", "", "ids", "finish", "error", "error", text), err);
}

static json_t *logprob_json(const struct tokenizer *tok, const struct logprob *lp)
{
    struct buf piece = {0};
    struct err err;
    json_t *object = NULL;
    if (tokenizer_piece_printable(tok, lp->id, &piece, &err) == 0)
        object = json_pack("{s:i, s:s, s:f}", "id", (int)lp->id, "piece", piece.data ? piece.data : "",
                           "logprob", (double)lp->logprob);
    buf_release(&piece);
    return object;
}

static json_t *logprobs_json(const struct tokenizer *tok, const struct gen_result *result)
{
    const size_t k = result->request->logprobs;
    json_t *list = json_array();
    for (size_t i = 0; i < result->n_ids; i++) {
        const struct logprob *at = result->logprobs + i * (k + 1);
        json_t *token = logprob_json(tok, at), *top = json_array();
        for (size_t j = 0; j < k; j++)
            json_array_append_new(top, logprob_json(tok, at + 1 + j));
        json_object_set_new(token, "top", top);
        json_array_append_new(list, token);
    }
    return list;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    struct line *line = result->request->user;
    const uint64_t number = result->request->line;
    int rc;
    if (result->finish == FINISHED_ERROR && !result->n_ids) {
        rc = write_error(job, number, line, result->error, err);
    } else {
        json_t *ids = json_array();
        for (size_t i = 0; i < result->n_ids; i++)
            json_array_append_new(ids, json_integer(result->ids[i]));
        json_t *object =
            json_pack("{s:s%, s:o, s:s, s:s?}", "text", result->text, result->text_len, "ids", ids,
                      "finish", gen_finish_name(result->finish), "error", result->error);
        if (object && result->request->logprobs)
            json_object_set_new(object, "logprobs", logprobs_json(job->gen->model->tok, result));
        rc = write_result(job, number, line, object, err);
    }
    line_free(line);
    return rc;
}

/* ---- in ---- */

/* The sequence of the snapshot that a line goes on from: the one that "from" names, or its own "id", or the one without
 * a name, for lines that have none, and for all if it is the only one. A line that continues a sequence under its own id keeps its random numbers; others, of which
 * there may be many, have those of their line. */
static int read_origin(const struct jsonl_job *job, struct line *line, struct gen_request *request,
                       struct err *err)
{
    const struct snapshot *snapshot = job->gen->snapshot;
    const json_t *from = json_object_get(line->root, "from");
    const bool named = from && !json_is_null(from);
    const json_t *name = named ? from : line->id;
    char *text = name ? dump_id(name) : NULL;
    size_t index = text                        ? snapshot_find(snapshot, text, strlen(text))
                   : snapshot->file.n_seqs > 1 ? snapshot_find(snapshot, "", 0)
                                               : SIZE_MAX;
    const uint64_t stream = request->stream;
    const bool own = index != SIZE_MAX && !named;
    int rc = 0;
    if (index == SIZE_MAX && !named && snapshot->file.n_seqs == 1 &&
        !snapshot_seq(snapshot, 0)->id_bytes)
        index = 0;
    if (index == SIZE_MAX)
        rc = err_set(err, "%s: has no sequence with%s id%s%s", snapshot->path, text ? "" : "out",
                     text ? " " : "", text ? text : "");
    else
        rc = gen_continue(job->gen, index, &line->prompt, request, err);
    free(text);
    if (rc < 0)
        return -1;
    request->stream = own ? request->stream : stream;
    line->sampling = gen_sampling(job->gen, index);
    request->sampling = &line->sampling;
    return 0;
}

static int read_prompt(const struct jsonl_job *job, struct line *line, struct err *err)
{
    const json_t *prompt = json_object_get(line->root, "prompt"),
                 *ids = json_object_get(line->root, "ids");
    const bool goes_on = job->gen->snapshot != NULL;
    if (!prompt && !ids && goes_on)
        return 0;
    if (!prompt == !ids)
        return err_set(err, goes_on ? "at most one of \"prompt\" and \"ids\" is expected"
                                    : "exactly one of \"prompt\" and \"ids\" is expected");
    if (prompt) {
        if (!json_is_string(prompt))
            return err_set(err, "\"prompt\" is %s, a string is expected", json_type_name(prompt));
        return tokenizer_encode(job->gen->model->tok, json_string_value(prompt),
                                json_string_length(prompt), !goes_on, &line->prompt, err);
    }
    if (!json_is_array(ids))
        return err_set(err, "\"ids\" is %s, a list of token ids is expected", json_type_name(ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return err_set(err, "\"ids\": entry %zu is no token id", i);
        if (ids_add(&line->prompt, (uint32_t)json_integer_value(id), err) < 0)
            return -1;
    }
    return 0;
}

/* "stop": a string or a list of them, in place of the options' ones. */
static int read_stop(struct line *line, struct gen_request *request, struct err *err)
{
    const json_t *stop = json_object_get(line->root, "stop");
    if (!stop || json_is_null(stop))
        return 0;
    const size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    line->stop = calloc(n + 1, sizeof *line->stop);
    if (!line->stop)
        return err_set(err, "out of memory for %zu stop strings", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!json_is_string(text))
            return err_set(err, "\"stop\" holds %s, strings are expected", json_type_name(text));
        if (!json_string_length(text) || strlen(json_string_value(text)) != json_string_length(text))
            return err_set(err, "\"stop\": a stop string is empty or holds a zero character");
        line->stop[i] = (char *)(uintptr_t)json_string_value(text);
    }
    request->stop = line->stop;
    request->n_stops = n;
    return 0;
}

static int read_numbers(struct line *line, struct gen_request *request, struct err *err)
{
    const json_t *n = json_object_get(line->root, "n"), *seed = json_object_get(line->root, "seed");
    n = json_is_null(n) ? NULL : n;
    seed = json_is_null(seed) ? NULL : seed;
    if (n && !(json_is_integer(n) && json_integer_value(n) >= -1))
        return err_set(err, "\"n\" must be a whole number of at least -1");
    if (seed && !(json_is_integer(seed) && json_integer_value(seed) >= 0))
        return err_set(err, "\"seed\" must be a whole number of at least 0");
    if (n)
        request->n = json_integer_value(n) < 0 ? GENERATE_NO_LIMIT : (size_t)json_integer_value(n);
    if (seed)
        request->seed = (uint64_t)json_integer_value(seed);
    return 0;
}

static int parse_line(const struct jsonl_job *job, struct line *line, const char *text, size_t len,
                      struct gen_request *request, struct err *err)
{
    json_error_t why;
    size_t blanks = 0;
    while (blanks < len && strchr(" \t\r", text[blanks]) && text[blanks])
        blanks++;
    if (blanks == len)
        return err_set(err, "is empty, an object is expected");
    line->root = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    if (!line->root)
        return err_set(err, "not valid JSON at column %d: %s", why.column, why.text);
    if (!json_is_object(line->root))
        return err_set(err, "is %s, an object is expected", json_type_name(line->root));
    line->id = json_object_get(line->root, "id");
    if ((job->gen->snapshot && read_origin(job, line, request, err) < 0) ||
        read_prompt(job, line, err) < 0 || read_stop(line, request, err) < 0 ||
        read_numbers(line, request, err) < 0)
        return -1;
    request->prompt = line->prompt.id;
    request->n_prompt = line->prompt.len;
    request->user = line;
    return 0;
}

/* The next line, without its end: GEN_REQUEST, GEN_END, or GEN_LATER when a whole one is not there yet and we
 * shall not wait. It stands until the next call. */
static int read_line(struct jsonl_job *job, bool wait, const char **line, size_t *len, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    struct buf *input = &job->input;
    size_t seen = job->taken; /* no line end before */
    for (;;) {
        const char *end =
            input->len > seen ? memchr(input->data + seen, '\n', input->len - seen) : NULL;
        if (end || (job->input_ended && input->len > job->taken)) {
            *line = input->data + job->taken;
            *len = end ? (size_t)(end - *line) : input->len - job->taken;
            job->taken += *len + (end != NULL);
            return GEN_REQUEST;
        }
        if (job->input_ended)
            return GEN_END;
        if (!wait && !cli_readable(job->in))
            return GEN_LATER;
        seen = input->len - job->taken;
        if (job->taken)
            memmove(input->data, input->data + job->taken, seen);
        input->len = seen;
        job->taken = 0;
        if (buf_reserve(input, BLOCK, err) < 0)
            return -1;
        const ssize_t n = cli_read(job->in, input->data + input->len, BLOCK);
        if (n < 0)
            return err_errno(err, "cannot read requests");
        job->input_ended = n == 0;
        if (cli_interrupted)
            return GEN_END; /* half a line is no request */
        input->len += (size_t)n;
    }
}

/* Bad lines are answered here, and the next one is read. */
static int next(void *arg, bool wait, struct gen_request *request, struct err *err)
{
    struct jsonl_job *job = arg;
    const char *text;
    size_t len;
    for (;;) {
        const int got = read_line(job, wait, &text, &len, err);
        if (got != GEN_REQUEST)
            return got;
        struct err why;
        struct line *line = new_line(job);
        if (!line || announce_line(job, err) < 0)
            return err_set(err, "out of memory for a request");
        *request = gen_request_of(job->gen);
        request->line = request->stream = job->n_lines++;
        if (parse_line(job, line, text, len, request, &why) == 0)
            return GEN_REQUEST;
        const int rc = write_error(job, request->line, line, why.text, err);
        line_free(line);
        if (rc < 0)
            return -1;
    }
}

static int keep(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    const struct line *line = result->request->user;
    char *id = line->id ? dump_id(line->id) : NULL;
    const int rc = gen_save(job->gen, seq, result, id, err);
    free(id);
    return rc;
}

int gen_jsonl(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    struct jsonl_job job = {.gen = gen, .in = STDIN_FILENO};
    const struct gen_callbacks callbacks = {next, NULL, done, NULL, keep, &job};
    struct gen_stats stats;
    int rc = -1;
    if (o->file && strcmp(o->file, "-") != 0 && (job.in = open(o->file, O_RDONLY | O_CLOEXEC)) < 0)
        return err_errno(err, "%s: cannot open", o->file);
    if (gen_open_session(gen, o->batch ? o->batch : 8, gen->model->config.context, err) == 0 &&
        gen_begin_save(gen, err) == 0 &&
        generate(&gen->session, &gen->sampling, gen->spec, &callbacks, &cli_interrupted, &stats, err) ==
            0 &&
        gen_end_save(gen, err) == 0)
        rc = gen_report(gen, &stats, err);
    while (job.lines)
        line_free(job.lines);
    for (size_t i = 0; i < job.n_waiting; i++)
        buf_release(&job.waiting[i].text);
    free(job.waiting);
    buf_release(&job.input);
    if (job.in != STDIN_FILENO)
        close(job.in);
    return rc;
}
