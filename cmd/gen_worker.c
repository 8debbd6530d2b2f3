/* The worker of a rank: lines come as messages, results go as such. */
#include "gen_worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "gen_counts.h"
#include "gen_ranks.h"

struct worker {
    struct post *post;
    struct message *line; /* the last one; its text is being read */
    bool no_more;
};

static int take(struct worker *worker, bool wait, struct message **message, struct err *err)
{
    while (post_take(worker->post, false, message, err) == 0) {
        if (*message || !wait || cli_interrupted)
            return 0;
        post_pause();
    }
    return -1;
}

static int next(void *arg, bool wait, struct jsonl_line *line, struct err *err)
{
    struct worker *worker = arg;
    free(worker->line);
    worker->line = NULL;
    if (worker->no_more)
        return GEN_END;
    if (take(worker, wait, &worker->line, err) < 0)
        return -1;
    if (!worker->line)
        return cli_interrupted ? GEN_END : GEN_LATER;
    const struct message *got = worker->line;
    worker->no_more = got->kind == POST_NO_MORE || got->bytes < sizeof line->number;
    if (worker->no_more)
        return GEN_END;
    memcpy(&line->number, got->data, sizeof line->number);
    line->text = got->kind == POST_LONG_LINE ? NULL : got->data + sizeof line->number;
    line->len = got->bytes - sizeof line->number;
    return GEN_REQUEST;
}

static int put(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err)
{
    struct worker *worker = arg;
    const int rc = post_send(worker->post, POST_DEALER, POST_RESULT, result, sizeof *result, text->data,
                             text->len, err);
    buf_release(text);
    return rc;
}

static int tell_failure(struct post *post, const struct err *failure)
{
    struct err told = *failure, none;
    if (post->ranks->rank > 0)
        err_prefix(&told, "%s", rank_name().text);
    return post_send(post, POST_DEALER, POST_FAILED, told.text, strlen(told.text), NULL, 0, &none);
}

static int tell_counts(struct gen *gen, struct post *post, const struct gen_stats *stats,
                       struct err *err)
{
    const struct rank_counts counts = rank_counts_now(gen, stats);
    return post_send(post, POST_DEALER, POST_ENDED, &counts, sizeof counts, NULL, 0, err);
}

/* Until the dealer has all: what was sent goes out meanwhile. */
static int await_bye(struct worker *worker, struct err *err)
{
    enum { MOST_MS = 800 }; /* of an interrupted run, whose dealer may be gone */
    const double start = clock_ms();
    for (bool gone = false; !gone;) {
        struct message *message;
        if (post_take(worker->post, false, &message, err) < 0)
            return -1;
        gone =
            (message && message->kind == POST_BYE) || (cli_interrupted && clock_ms() - start > MOST_MS);
        free(message);
        if (!gone)
            post_pause();
    }
    return 0;
}

int worker_run(struct gen *gen, struct post *post, struct err *err)
{
    struct worker worker = {.post = post};
    const struct jsonl_ends ends = {next, put, &worker};
    struct gen_stats stats;
    int rc = jsonl_run(gen, &ends, &stats, err);
    free(worker.line);
    if (rc < 0)
        return tell_failure(post, err) < 0 ? -1 : rc;
    if ((rc = tell_counts(gen, post, &stats, err)) == 0 && post->ranks->rank > 0)
        rc = await_bye(&worker, err);
    return rc;
}
