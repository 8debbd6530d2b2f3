/* Data parallelism: the worker of every rank, and the dispatcher of rank 0. */
#include "serve/dispatcher.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/threads.h"
#include "serve/line_queue.h"

/* ---- messages: sent between ranks, or through queues in memory to rank 0's own worker, which is a thread. Only the
 * thread that opened `ranks` may communicate with other ranks. ---- */

enum message_kind {
    /* Dispatcher to worker: */
    MESSAGE_LINE,    /* a request: uint64_t number of the line, then its text */
    MESSAGE_CANCEL,  /* a request to cancel: uint64_t number of its line */
    MESSAGE_NO_MORE, /* the input has ended */
    /* Worker to dispatcher: */
    MESSAGE_RESULT, /* struct serve_result, then its text */
    MESSAGE_EVENT,  /* of a request that streams: uint64_t number of the line, then the text */
    MESSAGE_ENDED,  /* the worker has finished: struct rank_counts */
    MESSAGE_FAILED, /* the worker has failed: struct err */
    /* Dispatcher to worker: it has received everything, and the worker may exit. */
    MESSAGE_BYE
};

struct message {
    struct message *next;
    int kind, from; /* enum message_kind; rank of the sender */
    size_t bytes;
    _Alignas(16) char data[];
};

struct message_queue {
    struct message *first, **last;
};

struct mailbox {
    struct ranks *ranks;
    pthread_mutex_t lock;
    struct message_queue to_dispatcher, to_worker; /* between threads of rank 0 */
};

enum { TO_DISPATCHER = -1 };

static void queue_clear(struct message_queue *queue)
{
    while (queue->first) {
        AUTO(free_auto) struct message *message = queue->first;
        queue->first = message->next;
    }
}

static void mailbox_open(struct mailbox *mailbox, struct ranks *ranks)
{
    *mailbox = (struct mailbox){.ranks = ranks};
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->to_dispatcher.last = &mailbox->to_dispatcher.first;
    mailbox->to_worker.last = &mailbox->to_worker.first;
}

static void mailbox_close(struct mailbox *mailbox)
{
    queue_clear(&mailbox->to_dispatcher);
    queue_clear(&mailbox->to_worker);
    pthread_mutex_destroy(&mailbox->lock);
}

static struct message *new_message(int kind, int from, size_t bytes, struct err *err)
{
    struct message *message = malloc(sizeof *message + bytes);
    if (message)
        *message = (struct message){.kind = kind, .from = from, .bytes = bytes};
    else
        err_no_memory(err, "a message of %zu bytes", bytes);
    return message;
}

static void enqueue(struct mailbox *mailbox, struct message_queue *queue, struct message *message)
{
    pthread_mutex_lock(&mailbox->lock);
    *queue->last = message;
    queue->last = &message->next;
    pthread_mutex_unlock(&mailbox->lock);
}

static struct message *dequeue(struct mailbox *mailbox, struct message_queue *queue)
{
    pthread_mutex_lock(&mailbox->lock);
    struct message *message = queue->first;
    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    pthread_mutex_unlock(&mailbox->lock);
    return message;
}

/* Sends `head` followed by `text` as one message to the worker of rank `to`, or to the dispatcher
 * if `to` is TO_DISPATCHER. Does not wait for the receiver. */
static int mailbox_send(struct mailbox *mailbox, int to, enum message_kind kind, const void *head,
                        size_t head_bytes, const void *text, size_t len, struct err *err)
{
    struct ranks *ranks = mailbox->ranks;
    struct message *message = new_message(kind, ranks->rank, head_bytes + len, err);
    if (!message)
        return -1;
    if (head_bytes)
        memcpy(message->data, head, head_bytes);
    if (len)
        memcpy(message->data + head_bytes, text, len);
    if (ranks->rank == 0 && to <= 0) {
        enqueue(mailbox, to == TO_DISPATCHER ? &mailbox->to_dispatcher : &mailbox->to_worker, message);
        return 0;
    }
    const int rc =
        ranks->ops->send(ranks, message->data, message->bytes, to == TO_DISPATCHER ? 0 : to, kind, err);
    free(message);
    return rc;
}

static int receive_from_ranks(struct ranks *ranks, struct message **message, struct err *err)
{
    int from = -1, kind = -1;
    size_t bytes;
    const int available = ranks->ops->probe(ranks, &from, &kind, &bytes, err);
    if (available <= 0)
        return available;
    if (!(*message = new_message(kind, from, bytes, err)))
        return -1;
    if (ranks->ops->receive(ranks, (*message)->data, bytes, &from, &kind, &bytes, err) == 0)
        return 0;
    free(*message);
    *message = NULL;
    return -1;
}

/* Sets *message to the next one for the dispatcher, or for this rank's worker if `dispatcher` is
 * false; the caller frees it. NULL: none has arrived. Does not wait. */
static int mailbox_receive(struct mailbox *mailbox, bool dispatcher, struct message **message,
                           struct err *err)
{
    const bool rank_0 = mailbox->ranks->rank == 0;
    *message =
        rank_0 ? dequeue(mailbox, dispatcher ? &mailbox->to_dispatcher : &mailbox->to_worker) : NULL;
    return *message || (rank_0 && !dispatcher) ? 0 : receive_from_ranks(mailbox->ranks, message, err);
}

/* Sleeps briefly, after mailbox_receive() has found nothing. */
static void mailbox_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL); }

/* ---- the worker: receives requests as messages and sends their results as messages ---- */

struct rank_worker {
    struct mailbox *mailbox;
    const volatile sig_atomic_t *interrupted;
    struct message *line; /* the latest message, which owns the line being parsed */
    bool no_more;
};

static int await_message(struct rank_worker *worker, bool wait, struct message **message,
                         struct err *err)
{
    while (mailbox_receive(worker->mailbox, false, message, err) == 0) {
        if (*message || !wait || *worker->interrupted)
            return 0;
        mailbox_pause();
    }
    return -1;
}

static int next_input(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct rank_worker *worker = arg;
    free(worker->line);
    worker->line = NULL;
    if (worker->no_more)
        return GEN_END;
    if (await_message(worker, wait, &worker->line, err) < 0)
        return -1;
    if (!worker->line)
        return *worker->interrupted ? GEN_END : GEN_LATER;
    const struct message *got = worker->line;
    worker->no_more = got->kind == MESSAGE_NO_MORE || got->bytes < sizeof input->number;
    if (worker->no_more)
        return GEN_END;
    memcpy(&input->number, got->data, sizeof input->number);
    input->json = got->data + sizeof input->number;
    input->len = got->bytes - sizeof input->number;
    input->cancels = got->kind == MESSAGE_CANCEL;
    return GEN_REQUEST;
}

static int send_event(void *arg, uint64_t number, struct buf *text, struct err *err)
{
    struct rank_worker *worker = arg;
    const int rc = mailbox_send(worker->mailbox, TO_DISPATCHER, MESSAGE_EVENT, &number, sizeof number,
                                text->data, text->len, err);
    buf_release(text);
    return rc;
}

static int send_result(void *arg, const struct serve_result *result, struct buf *text, struct err *err)
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
    return mailbox_send(mailbox, TO_DISPATCHER, MESSAGE_FAILED, &sent, sizeof sent, NULL, 0, &ignored);
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

static int serve_mailbox(struct serve *serve, struct mailbox *mailbox, const char *rank_name,
                         struct err *err)
{
    struct rank_worker worker = {.mailbox = mailbox, .interrupted = serve->interrupted};
    const struct serve_io io = {.next = next_input,
                                .put = send_result,
                                .event = send_event,
                                .can_cancel = true,
                                .arg = &worker};
    struct gen_stats stats;
    int rc = serve_lines(serve, &io, &stats, err);
    free(worker.line);
    if (rc < 0)
        return send_failure(mailbox, rank_name, err) < 0 ? -1 : rc;
    const struct rank_counts counts = rank_counts_now(serve->session, &stats);
    rc = mailbox_send(mailbox, TO_DISPATCHER, MESSAGE_ENDED, &counts, sizeof counts, NULL, 0, err);
    return rc == 0 && mailbox->ranks->rank > 0 ? await_bye(&worker, err) : rc;
}

int worker_run(struct serve *serve, struct ranks *ranks, const char *rank_name, struct err *err)
{
    struct mailbox mailbox;
    mailbox_open(&mailbox, ranks);
    const int rc = serve_mailbox(serve, &mailbox, rank_name, err);
    mailbox_close(&mailbox);
    return rc;
}

/* ---- the dispatcher ---- */

/* How long to wait for results after an interrupt, in ms: mpirun sends SIGKILL after a second. */
enum { GRACE_MS = 700 };

struct dispatcher {
    /* requests without a result: those that wait, and those that ranks serve */
    struct line_queue queue;
    struct dispatch *job;
    struct mailbox mailbox;
    size_t *in_flight;          /* [ranks] number of requests that each rank serves */
    bool input_ended, told_end; /* the ranks know that the input has ended */
    int n_ended;                /* number of ranks whose worker has finished */
    struct hash *hash;          /* [n_hashes] logits_hash of each input line's result */
    size_t n_hashes, hashes_cap;
};

static struct request_line *find_line(const struct dispatcher *d, uint64_t number)
{
    struct request_line *line = d->queue.lines;
    while (line && line->number != number)
        line = line->next;
    return line;
}

static int receive_result(struct dispatcher *d, const struct message *message, struct err *err)
{
    struct serve_result result;
    struct buf text = {0};
    if (message->bytes < sizeof result)
        return err_set(err, "rank %d sent a result of %zu bytes, %zu at least are expected",
                       message->from, message->bytes, sizeof result);
    memcpy(&result, message->data, sizeof result);
    struct request_line *line = find_line(d, result.number);
    if (!line || line->waits)
        return 0;
    d->in_flight[line->rank]--;
    d->hash[result.number] = line->logits_hash = result.logits_hash;
    const int rc = buf_add(&text, message->data + sizeof result, message->bytes - sizeof result, err);
    return line_queue_put(&d->queue, line, rc, result.failed, &text, err);
}

static int receive_event(const struct dispatcher *d, const struct message *message, struct err *err)
{
    struct buf text = {0};
    uint64_t number;
    if (message->bytes < sizeof number)
        return err_set(err, "rank %d sent an event without its line: it runs another version",
                       message->from);
    memcpy(&number, message->data, sizeof number);
    if (buf_add(&text, message->data + sizeof number, message->bytes - sizeof number, err) < 0)
        return -1;
    return d->queue.io->event(d->queue.io->arg, number, &text, err);
}

static int receive_counts(struct dispatcher *d, const struct message *message, struct err *err)
{
    struct rank_counts counts;
    if (message->bytes != sizeof counts)
        return err_set(err,
                       "rank %d sent counts of %zu bytes, %zu are expected: it runs another version",
                       message->from, message->bytes, sizeof counts);
    memcpy(&counts, message->data, sizeof counts);
    rank_counts_add(&d->job->counts, &counts);
    d->n_ended++;
    return 0;
}

static int receive_failure(const struct message *message, struct err *err)
{
    if (message->bytes != sizeof *err)
        return err_set(err, "rank %d failed, and runs another version", message->from);
    memcpy(err, message->data, sizeof *err);
    err->text[sizeof err->text - 1] = 0;
    return -1;
}

static int receive_message(struct dispatcher *d, const struct message *message, struct err *err)
{
    switch ((enum message_kind)message->kind) {
    case MESSAGE_RESULT: return receive_result(d, message, err);
    case MESSAGE_EVENT: return receive_event(d, message, err);
    case MESSAGE_ENDED: return receive_counts(d, message, err);
    case MESSAGE_FAILED: return receive_failure(message, err);
    case MESSAGE_LINE:
    case MESSAGE_CANCEL:
    case MESSAGE_NO_MORE:
    case MESSAGE_BYE: break;
    }
    return err_set(err, "rank %d sent a message that only rank 0 sends", message->from);
}

/* Handles all messages that have arrived; returns 1 if there were any, else 0. */
static int receive_all(struct dispatcher *d, struct err *err)
{
    struct message *message;
    int came = 0;
    while (mailbox_receive(&d->mailbox, true, &message, err) == 0) {
        if (!message)
            return came;
        const int rc = receive_message(d, message, err);
        free(message);
        if (rc < 0)
            return -1;
        came = 1;
    }
    return -1;
}

/* The rank with the fewest requests in flight, -1 if none has a free slot. Among equals takes the
 * highest rank, since rank 0 is also busy dispatching. */
static int least_busy(const struct dispatcher *d)
{
    int rank = -1;
    for (int r = d->job->ranks->size - 1; r >= 0; r--)
        if (d->in_flight[r] < (rank < 0 ? d->job->slots : d->in_flight[rank]))
            rank = r;
    return rank;
}

static int send_to_all(struct dispatcher *d, enum message_kind kind, struct err *err)
{
    int rc = 0;
    for (int r = 0; r < d->job->ranks->size && rc == 0; r++)
        rc = mailbox_send(&d->mailbox, r, kind, NULL, 0, NULL, 0, err);
    return rc;
}

/* Keeps the line for a rank, which reads it again. */
static int keep_text(struct line_queue *queue, struct request_line *line,
                     const struct serve_input *input, struct err *err)
{
    if (line_queue_open(queue, line, input, err) < 0)
        return -1;
    if (line->request.cancel)
        return 0;
    request_close(&line->request);
    return buf_add(&line->text, input->json, input->len, err);
}

/* Reads the next request. Returns 1 if there is one or the input has ended, 0 if none has arrived. */
static int read_request(struct dispatcher *d, struct err *err)
{
    struct request_line *line;
    if (d->input_ended || d->queue.n_waiting >= QUEUE_READ_AHEAD)
        return 0;
    const int got = line_queue_read(&d->queue, false, &line, err);
    if (got == GEN_LATER || got < 0)
        return got < 0 ? -1 : 0;
    d->input_ended = got == GEN_END;
    if (d->input_ended)
        return 1;
    line_queue_set_waiting(&d->queue, line, true);
    while (d->n_hashes <= line->number) {
        if (mem_grow(&d->hash, &d->hashes_cap, d->n_hashes, sizeof *d->hash, err) < 0)
            return -1;
        d->hash[d->n_hashes++] = (struct hash){0};
    }
    return 1;
}

/* Sends the next request to the least busy rank. Returns 1 if it sent one or that there are no more, 0 if no
 * slot is free or no request waits. */
static int send_request(struct dispatcher *d, struct err *err)
{
    struct request_line *line = line_queue_first(&d->queue);
    const int rank = least_busy(d);
    if (!line && d->input_ended && !d->told_end) {
        d->told_end = true;
        return send_to_all(d, MESSAGE_NO_MORE, err) < 0 ? -1 : 1;
    }
    if (!line || rank < 0)
        return 0;
    if (mailbox_send(&d->mailbox, rank, MESSAGE_LINE, &line->number, sizeof line->number,
                     line->text.data, line->text.len, err) < 0)
        return -1;
    line->rank = rank;
    line_queue_set_waiting(&d->queue, line, false);
    d->in_flight[rank]++;
    buf_release(&line->text);
    return 1;
}

/* Tells ranks which of their requests others have cancelled. */
static int send_cancels(struct dispatcher *d, struct err *err)
{
    int rc = 0;
    for (struct request_line *line = d->queue.lines; line && rc == 0; line = line->next) {
        if (!line->cancelled || line->told_cancel || line->waits)
            continue;
        line->told_cancel = true;
        rc = mailbox_send(&d->mailbox, line->rank, MESSAGE_CANCEL, &line->number, sizeof line->number,
                          NULL, 0, err);
    }
    return rc;
}

/* Reads and sends requests that need not wait; returns as send_request() does. */
static int serve_input(struct dispatcher *d, struct err *err)
{
    const int read = read_request(d, err), sent = read < 0 ? -1 : send_request(d, err);
    return sent < 0 || send_cancels(d, err) < 0 ? -1 : read || sent;
}

static int dispatch(struct dispatcher *d, struct err *err)
{
    const volatile sig_atomic_t *interrupted = d->queue.serve->interrupted;
    double deadline = 0;
    while (d->n_ended < d->job->ranks->size) {
        const int came = receive_all(d, err), sent = came < 0 || *interrupted ? 0 : serve_input(d, err);
        if (came < 0 || sent < 0)
            return -1;
        if (*interrupted && deadline == 0)
            deadline = clock_ms() + GRACE_MS;
        if (*interrupted && clock_ms() > deadline)
            return err_set(err, "a rank did not end in time after the interrupt");
        if (!came && !sent)
            mailbox_pause();
    }
    return 0;
}

/* Writes a failure result for every request without one. Ignores write errors, as the run has failed. */
static void fail_all(struct dispatcher *d, const struct err *failure)
{
    struct err ignored, why = *d->queue.serve->interrupted ? err_interrupted : *failure;
    int rc = 0;
    if (why.code != ERR_INTERRUPTED)
        err_prefix(&why, "the run ended");
    while (d->queue.lines && rc == 0)
        rc = line_queue_fail(&d->queue, d->queue.lines, &why, &ignored);
}

static void close_dispatcher(struct dispatcher *d)
{
    line_queue_release(&d->queue);
    free(d->in_flight);
    free(d->hash);
    mailbox_close(&d->mailbox);
    free(d);
}

/* Thread function of rank 0's worker, which reports errors to the dispatcher by message. */
static void *run_worker(void *arg)
{
    struct dispatcher *d = arg;
    struct err ignored;
    return serve_mailbox(d->queue.serve, &d->mailbox, "", &ignored) < 0 ? arg : NULL;
}

int dispatch_lines(struct serve *serve, const struct serve_io *io, struct dispatch *job,
                   struct err *err)
{
    const size_t n = (size_t)job->ranks->size;
    pthread_t thread;
    struct dispatcher *d = calloc(1, sizeof *d);
    size_t *in_flight = calloc(n, sizeof *in_flight);
    if (!d || !in_flight) {
        free(d);
        free(in_flight);
        return err_no_memory(err, "%zu ranks", n);
    }
    *d = (struct dispatcher){
        .queue = {.serve = serve, .io = io, .prepare = keep_text}, .job = job, .in_flight = in_flight};
    mailbox_open(&d->mailbox, job->ranks);
    if (thread_start(&thread, run_worker, d) != 0) {
        close_dispatcher(d);
        return err_set(err, "cannot start a thread for the worker of rank 0");
    }
    if (dispatch(d, err) < 0 || send_to_all(d, MESSAGE_BYE, err) < 0) {
        fail_all(d, err); /* the worker's thread may still use `d`, so it is not freed */
        return -1;
    }
    pthread_join(thread, NULL);
    if (d->queue.lines) /* after an interrupt: those that no rank has taken */
        fail_all(d, &err_interrupted);
    job->counts.gen.logits_hash = gen_run_hash(d->hash, d->n_hashes);
    close_dispatcher(d);
    return 0;
}
