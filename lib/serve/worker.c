/* The worker of a rank: receives requests as messages and sends their results as messages. */
#include "serve/worker.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/rank_counts.h"
#include "serve/serve_lines.h"

struct rank_worker {
    struct mailbox *mailbox;
    const volatile sig_atomic_t *interrupted;
    struct message *line; /* the latest message, which owns the line being parsed */
    bool no_more;
};

static int receive(struct rank_worker *worker, bool wait, struct message **message, struct err *err)
{
    while (mailbox_receive(worker->mailbox, false, message, err) == 0) {
        if (*message || !wait || *worker->interrupted)
            return 0;
        mailbox_pause();
    }
    return -1;
}

static int next(void *arg, bool wait, struct jsonl_line *line, struct err *err)
{
    struct rank_worker *worker = arg;
    free(worker->line);
    worker->line = NULL;
    if (worker->no_more)
        return GEN_END;
    if (receive(worker, wait, &worker->line, err) < 0)
        return -1;
    if (!worker->line)
        return *worker->interrupted ? GEN_END : GEN_LATER;
    const struct message *got = worker->line;
    worker->no_more = got->kind == MESSAGE_NO_MORE || got->bytes < sizeof line->number;
    if (worker->no_more)
        return GEN_END;
    memcpy(&line->number, got->data, sizeof line->number);
    line->text = got->kind == MESSAGE_LONG_LINE ? NULL : got->data + sizeof line->number;
    line->cancels = got->kind == MESSAGE_CANCEL;
    line->len = got->bytes - sizeof line->number;
    return GEN_REQUEST;
}

static int event(void *arg, struct buf *text, struct err *err)
{
    struct rank_worker *worker = arg;
    const int rc = mailbox_send(worker->mailbox, TO_DISPATCHER, MESSAGE_EVENT, NULL, 0, text->data,
                                text->len, err);
    buf_release(text);
    return rc;
}

static int put(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err)
{
    struct rank_worker *worker = arg;
    const int rc = mailbox_send(worker->mailbox, TO_DISPATCHER, MESSAGE_RESULT, result, sizeof *result,
                                text->data, text->len, err);
    buf_release(text);
    return rc;
}

static int send_failure(struct mailbox *mailbox, const char *rank_name, const struct err *failure)
{
    struct err sent = *failure, ignored;
    if (mailbox->ranks->rank > 0)
        err_prefix(&sent, "%s", rank_name);
    return mailbox_send(mailbox, TO_DISPATCHER, MESSAGE_FAILED, sent.text, strlen(sent.text), NULL, 0,
                        &ignored);
}

/* Waits until the dispatcher has received everything, since outgoing messages progress only while
 * this rank makes MPI calls. */
static int await_bye(struct rank_worker *worker, struct err *err)
{
    enum { MAX_MS = 800 }; /* longest wait after an interrupt: the dispatcher may have exited */
    const double start = clock_ms();
    for (bool over = false; !over;) {
        struct message *message;
        if (mailbox_receive(worker->mailbox, false, &message, err) < 0)
            return -1;
        over = (message && message->kind == MESSAGE_BYE) ||
               (*worker->interrupted && clock_ms() - start > MAX_MS);
        free(message);
        if (!over)
            mailbox_pause();
    }
    return 0;
}

int worker_run(const struct serve *serve, struct mailbox *mailbox, const char *rank_name,
               struct err *err)
{
    struct rank_worker worker = {.mailbox = mailbox, .interrupted = serve->interrupted};
    const struct jsonl_io io = {
        .next = next, .put = put, .event = event, .can_cancel = true, .arg = &worker};
    struct gen_stats stats;
    int rc = serve_lines(serve, &io, &stats, err);
    free(worker.line);
    if (rc < 0)
        return send_failure(mailbox, rank_name, err) < 0 ? -1 : rc;
    const struct rank_counts counts = rank_counts_now(serve->session, &stats);
    rc = mailbox_send(mailbox, TO_DISPATCHER, MESSAGE_ENDED, &counts, sizeof counts, NULL, 0, err);
    return rc == 0 && mailbox->ranks->rank > 0 ? await_bye(&worker, err) : rc;
}
