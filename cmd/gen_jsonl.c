/* The loop over requests, each a line of JSON, and what becomes of them.
 *
 * Requests are taken as places in the batch become free. A line that is wrong costs its own result only, and when the
 * run ends by an error, every line that was taken has a result all the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/words.h"
#include "cli.h"
#include "decode/request.h"
#include "decode/result.h"
#include "gen_jsonl.h"
#include "gen_lines.h"

/* One line's request, and what it owns. */
struct line {
    struct line *next, **link; /* among those under way */
    uint64_t number;
    struct request request;
    char *id;       /* as JSON, or NULL */
    struct ids ids; /* of its prompt, then of what was generated */
};

struct jsonl_job {
    struct gen *gen;
    const struct jsonl_ends *ends;
    struct line *lines; /* under way */
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
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    request_close(&line->request);
    ids_release(&line->ids);
    free(line->id);
    free(line);
}

/* ---- out ---- */

/* The line's last word: nothing came out of it. */
static int put_failure(struct jsonl_job *job, struct line *line, const char *why, struct err *err)
{
    const struct jsonl_result failed = {.number = line->number, .failed = true};
    struct buf text = {0};
    int rc = failure_line(line->id, line->number, why, &text, err);
    if (rc == 0)
        rc = job->ends->put(job->ends->arg, &failed, &text, err);
    line_free(line);
    return rc;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    struct line *line = result->request->user;
    struct buf text = {0};
    struct err why;
    if (result->finish == FINISHED_ERROR && !result->n_ids)
        return put_failure(job, line, result->error, err);
    if (result_line(job->gen->model->tok, line->id, result, &text, &why) < 0)
        return put_failure(job, line, why.text, err);
    const struct jsonl_result told = {line->number, result->finish == FINISHED_ERROR,
                                      result->logits_hash};
    const int rc = job->ends->put(job->ends->arg, &told, &text, err);
    line_free(line);
    return rc;
}

/* ---- in ---- */

char *jsonl_spell_id(const json_t *id, struct err *err)
{
    struct buf text = {0};
    if (json_spell(id, JSON_COMPACT | JSON_REAL_PRECISION(17), &text, err) == 0)
        return text.data;
    buf_release(&text);
    return NULL;
}

/* The sequence of the snapshot that a line goes on from: the one that "from" names, or its own "id", or the one without
 * a name, for lines that have none, and for all if it is the only one. SIZE_MAX, and the error: there is none. */
static size_t find_origin(const struct snapshot *snapshot, const char *name, bool named,
                          struct err *err)
{
    const bool only = snapshot->file.n_seqs == 1;
    const size_t index = name    ? snapshot_find(snapshot, name, strlen(name))
                         : !only ? snapshot_find(snapshot, "", 0)
                                 : SIZE_MAX;
    if (index != SIZE_MAX)
        return index;
    if (!named && only && !snapshot_seq(snapshot, 0)->id_bytes)
        return 0;
    err_set(err, "%s: has no sequence with%s id%s%s", snapshot->path, name ? "" : "out",
            name ? " " : "", name ? excerpt_of(name, strlen(name)).text : "");
    return SIZE_MAX;
}

/* A line that continues a sequence under its own id keeps its random numbers; others, of which there may be many, have
 * those of their line. */
static int read_origin(const struct jsonl_job *job, struct line *line, struct err *err)
{
    const struct snapshot *snapshot = job->gen->snapshot;
    struct gen_request *request = &line->request.gen;
    const uint64_t stream = request->stream;
    const bool named = line->request.from != NULL;
    char *name = named ? jsonl_spell_id(line->request.from, err) : NULL;
    if (named && !name)
        return -1;
    const size_t index = find_origin(snapshot, named ? name : line->id, named, err);
    free(name);
    if (index == SIZE_MAX || gen_continue(job->gen, index, request, err) < 0)
        return -1;
    const bool own =
        !named && (line->id ? snapshot_seq(snapshot, index)->id_bytes != 0 : snapshot->file.n_seqs > 1);
    request->stream = own ? request->stream : stream;
    line->request.sampling = gen_sampling(job->gen, index);
    return 0;
}

/* How its messages become a prompt. */
static unsigned chat_how(const struct jsonl_job *job, const struct line *line)
{
    const bool special = request_parses_special(&line->request, job->gen->options->special);
    return (job->gen->snapshot ? CHAT_GOES_ON : 0) | (special ? CHAT_PARSES_SPECIAL : 0);
}

/* The turns of a conversation. */
static int read_messages(const struct jsonl_job *job, struct line *line, struct err *err)
{
    const struct request *request = &line->request;
    const size_t n = json_array_size(request->messages);
    struct chat_turn *turn = mem_alloc(n, sizeof *turn);
    if (!turn)
        return err_set(err, "out of memory for %zu messages", n);
    for (size_t i = 0; i < n; i++)
        turn[i] = request_turn(request, i);
    int rc = gen_open_chat(job->gen, err);
    if (rc == 0) {
        gen_chat_request(job->gen, &line->request.gen);
        rc = gen_chat_prompt(job->gen, turn, n, chat_how(job, line), &line->ids, NULL, err);
    }
    free(turn);
    return rc;
}

static int read_text(const struct jsonl_job *job, struct line *line, struct err *err)
{
    const char *text = json_string_value(line->request.text);
    const size_t len = json_string_length(line->request.text);
    const bool goes_on = job->gen->snapshot != NULL;
    const bool special = request_parses_special(&line->request, !job->gen->options->no_parse_special);
    if (job->gen->options->chat)
        return gen_chat_user(job->gen, text, len, chat_how(job, line), &line->ids, NULL, err);
    return gen_encode(job->gen, text, len, !goes_on, special, &line->ids, err);
}

static int read_prompt(const struct jsonl_job *job, struct line *line, struct err *err)
{
    const struct request *request = &line->request;
    const bool goes_on = job->gen->snapshot != NULL;
    const int prompts = (request->text != NULL) + (request->ids != NULL) + (request->messages != NULL);
    if (!goes_on && request->from)
        return err_set(err, "\"from\" names a sequence of a snapshot, which --load-kv would give");
    if (prompts > 1 || (!prompts && !goes_on))
        return err_set(err, "%s one of \"prompt\", \"ids\" and \"messages\" is expected",
                       goes_on ? "at most" : "exactly");
    if (request->messages)
        return read_messages(job, line, err);
    if (request->text)
        return read_text(job, line, err);
    return request_ids(request, &line->ids, err);
}

/* What the run says, then what the sequence that is continued says, then the line. */
static int read_request(const struct jsonl_job *job, struct line *line, const struct jsonl_line *read,
                        struct err *err)
{
    struct request *request = &line->request;
    if (lines_check(read->text, err) < 0)
        return -1;
    const int rc = request_open(request, read->text, read->len, job->gen->options->lenient, err);
    if (request->id && !(line->id = jsonl_spell_id(request->id, err)))
        return -1;
    if (rc < 0)
        return -1;
    request->gen = gen_request_of(job->gen, &line->ids);
    request->gen.line = request->gen.stream = line->number;
    request->gen.user = line;
    request->sampling = job->gen->sampling;
    if ((job->gen->snapshot && read_origin(job, line, err) < 0) || request_apply(request, err) < 0 ||
        read_prompt(job, line, err) < 0)
        return -1;
    return 0;
}

/* Bad lines are answered here, and the next one is read. */
static int next(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct jsonl_job *job = arg;
    struct jsonl_line read;
    for (;;) {
        const int got = job->ends->next(job->ends->arg, wait, &read, err);
        if (got != GEN_REQUEST)
            return got;
        struct err why;
        struct line *line = new_line(job);
        if (!line)
            return err_set(err, "out of memory for a request");
        line->number = read.number;
        if (read_request(job, line, &read, &why) == 0) {
            *request = &line->request.gen;
            return GEN_REQUEST;
        }
        if (put_failure(job, line, why.text, err) < 0)
            return -1;
    }
}

static int keep(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct jsonl_job *job = arg;
    const struct line *line = result->request->user;
    return gen_save(job->gen, seq, result, line->id, err);
}

/* The run ended by an error: lines under way say so. */
static void put_rest(struct jsonl_job *job, const char *why)
{
    struct err none;
    char text[sizeof none.text + 32];
    snprintf(text, sizeof text, "the run ended: %s", why);
    while (job->lines)
        if (put_failure(job, job->lines, text, &none) < 0)
            break; /* the run's error is told, not this one, which may well be the same */
}

int jsonl_run(struct gen *gen, const struct jsonl_ends *ends, struct gen_stats *stats, struct err *err)
{
    struct jsonl_job job = {.gen = gen, .ends = ends};
    const struct gen_callbacks callbacks = {next, NULL, done, NULL, keep, &job};
    const int rc = generate(&gen->session, &gen->sampling, gen->strategy, &callbacks, &cli_interrupted,
                            stats, err);
    if (rc < 0)
        put_rest(&job, err->text);
    while (job.lines)
        line_free(job.lines);
    return rc;
}
