/* Distributes input lines over the workers of all ranks and collects their results. */
#include "serve/dispatcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "serve/openai_answer.h"
#include "serve/result.h"
#include "serve/worker.h"

/* How long to wait for results after an interrupt, in ms: mpirun sends SIGKILL after a second. */
enum { GRACE_MS = 700 };

/* An input line that has no result yet. */
struct dispatched {
    struct dispatched *next;
    uint64_t number;
    int rank;        /* that serves it; NO_RANK: it waits for a free slot */
    char *id;        /* the request's id as JSON text, or NULL */
    struct buf text; /* while it waits: the line; empty: too long */
    bool cancelled;  /* while it waits */
    bool batch;      /* of a batch of OpenAI's */
};

enum { NO_RANK = -1 };

struct dispatcher {
    const struct serve *serve;
    struct dispatch *job;
    struct mailbox mailbox;
    struct dispatched *lines;
    size_t n_queued;            /* of these, the number that wait */
    size_t *in_flight;          /* [ranks] number of lines in flight on each rank */
    bool input_ended, told_end; /* the ranks know that the input has ended */
    int n_ended;                /* number of ranks whose worker has finished */
    struct hash *hash;          /* [n_hashes] logits_hash of each input line's result */
    size_t n_hashes, hashes_cap;
};

/* Removes line `number` from the lines in flight; false: it is not among them. */
static bool remove_line(struct dispatcher *d, uint64_t number)
{
    for (struct dispatched **at = &d->lines, *line; (line = *at); at = &line->next)
        if (line->number == number) {
            *at = line->next;
            if (line->rank == NO_RANK)
                d->n_queued--;
            else
                d->in_flight[line->rank]--;
            buf_release(&line->text);
            free(line->id);
            free(line);
            return true;
        }
    return false;
}

static int receive_result(struct dispatcher *d, const struct message *message, struct err *err)
{
    struct jsonl_result result;
    struct buf text = {0};
    if (message->bytes < sizeof result)
        return err_set(err, "rank %d sent a result of %zu bytes, %zu at least are expected",
                       message->from, message->bytes, sizeof result);
    memcpy(&result, message->data, sizeof result);
    if (!remove_line(d, result.number))
        return 0;
    d->hash[result.number] = result.logits_hash;
    d->job->n_failed += result.failed;
    if (buf_add(&text, message->data + sizeof result, message->bytes - sizeof result, err) < 0)
        return -1;
    return results_put(d->job->results, result.number, &text, err);
}

static int receive_event(const struct dispatcher *d, const struct message *message, struct err *err)
{
    struct buf text = {0};
    int rc = buf_add(&text, message->data, message->bytes, err);
    if (rc == 0)
        rc = d->job->results->write(&text, err);
    buf_release(&text);
    return rc;
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

static int receive_message(struct dispatcher *d, const struct message *message, struct err *err)
{
    switch ((enum message_kind)message->kind) {
    case MESSAGE_RESULT: return receive_result(d, message, err);
    case MESSAGE_EVENT: return receive_event(d, message, err);
    case MESSAGE_ENDED: return receive_counts(d, message, err);
    case MESSAGE_FAILED: return err_set(err, "%.*s", (int)message->bytes, message->data);
    case MESSAGE_LINE:
    case MESSAGE_LONG_LINE:
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

/* The rank with the fewest lines in flight, -1 if none has a free slot. Among equals takes the
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

/* Announces the next input line, which waits for a slot. */
static int add_line(struct dispatcher *d, struct dispatched **added, struct err *err)
{
    const uint64_t number = d->job->lines->number;
    if (results_expect(d->job->results, number, err) < 0)
        return -1;
    while (d->n_hashes <= number) {
        if (mem_grow(&d->hash, &d->hashes_cap, d->n_hashes, sizeof *d->hash, err) < 0)
            return -1;
        d->hash[d->n_hashes++] = (struct hash){0};
    }
    struct dispatched *line = *added = calloc(1, sizeof *line);
    if (!line)
        return err_no_memory(err, "a request");
    *line = (struct dispatched){.next = d->lines, .number = number, .rank = NO_RANK};
    d->lines = line;
    d->n_queued++;
    d->job->n_requests++;
    return 0;
}

static int tell_cancel(struct dispatcher *d, int rank, const char *id, struct err *err)
{
    static const uint64_t none;
    return mailbox_send(&d->mailbox, rank, MESSAGE_CANCEL, &none, sizeof none, id, strlen(id) + 1, err);
}

/* Ends the requests with this id that are in flight or wait; writes how many were not ended before. */
static int cancel(struct dispatcher *d, const struct dispatched *by, const json_t *cancelled,
                  struct err *err)
{
    struct buf text = {0};
    size_t n = 0;
    char *id = request_format_id(cancelled, err);
    int rc = id ? 0 : -1;
    for (struct dispatched *line = d->lines; line && rc == 0; line = line->next) {
        if (line == by || line->cancelled || !line->id || strcmp(line->id, id) != 0)
            continue;
        line->cancelled = true;
        n++;
        if (line->rank != NO_RANK)
            rc = tell_cancel(d, line->rank, id, err);
    }
    free(id);
    if (rc == 0)
        rc = result_cancelled(by->id, n, &text, err);
    const uint64_t number = by->number;
    remove_line(d, number);
    return rc == 0 ? results_put(d->job->results, number, &text, err) : -1;
}

/* Finds the id of a line, and serves requests to cancel others here; all else is for a rank. */
static int look_at(struct dispatcher *d, struct dispatched *line, struct err *err)
{
    const bool lenient = d->serve->options.lenient;
    struct request request = {0};
    struct err why;
    const bool valid =
        line->text.data && request_open(&request, line->text.data, line->text.len, lenient, &why) == 0;
    int rc = 0;
    d->job->ignored |= valid ? request.ignored : 0;
    line->batch = request.batch;
    if (request.id && !(line->id = request_format_id(request.id, err)))
        rc = -1;
    else if (valid && request.cancel && request_check_cancel(&request, lenient, &why) == 0)
        rc = cancel(d, line, request.cancel, err);
    request_close(&request);
    return rc;
}

/* Reads the next line. Returns 1 if there is one or the input has ended, 0 if none has arrived. */
static int read_line(struct dispatcher *d, struct err *err)
{
    struct dispatched *line;
    const char *text;
    size_t len;
    if (d->input_ended || d->n_queued >= LINES_READ_AHEAD)
        return 0;
    const int got = lines_next(d->job->lines, false, &text, &len, err);
    if (got == GEN_LATER || got < 0)
        return got < 0 ? -1 : 0;
    d->input_ended = got == GEN_END;
    if (d->input_ended)
        return 1;
    if (add_line(d, &line, err) < 0 || (text && buf_add(&line->text, text, len, err) < 0) ||
        look_at(d, line, err) < 0)
        return -1;
    return 1;
}

/* The line that has waited longest, NULL: none waits. */
static struct dispatched *first_queued(const struct dispatcher *d)
{
    struct dispatched *first = NULL;
    for (struct dispatched *line = d->lines; line && d->n_queued; line = line->next)
        if (line->rank == NO_RANK && (!first || line->number < first->number))
            first = line;
    return first;
}

/* Sends the next line to the least busy rank. Returns 1 if it sent one or that there are no more, 0 if no
 * slot is free or no line waits. */
static int send_line(struct dispatcher *d, struct err *err)
{
    struct dispatched *line = first_queued(d);
    const int rank = least_busy(d);
    if (!line && d->input_ended && !d->told_end) {
        d->told_end = true;
        return send_to_all(d, MESSAGE_NO_MORE, err) < 0 ? -1 : 1;
    }
    if (!line || rank < 0)
        return 0;
    if (mailbox_send(&d->mailbox, rank, line->text.data ? MESSAGE_LINE : MESSAGE_LONG_LINE,
                     &line->number, sizeof line->number, line->text.data, line->text.len, err) < 0 ||
        (line->cancelled && tell_cancel(d, rank, line->id, err) < 0))
        return -1;
    line->rank = rank;
    d->n_queued--;
    d->in_flight[rank]++;
    buf_release(&line->text);
    return 1;
}

/* Reads and sends lines that need not wait; returns as send_line() does. */
static int serve_input(struct dispatcher *d, struct err *err)
{
    const int read = read_line(d, err), sent = read < 0 ? -1 : send_line(d, err);
    return sent < 0 ? -1 : read || sent;
}

static int dispatch(struct dispatcher *d, struct err *err)
{
    const volatile sig_atomic_t *interrupted = d->serve->interrupted;
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

/* Writes a failure result for every line in flight. Ignores write errors, as the run has failed. */
static void fail_lines(struct dispatcher *d, const struct err *failure)
{
    struct err ignored, why = *d->serve->interrupted ? err_interrupted : *failure;
    int rc = 0;
    if (why.code != ERR_INTERRUPTED)
        err_prefix(&why, "the run ended");
    while (d->lines && rc == 0) {
        struct buf result = {0};
        const uint64_t number = d->lines->number;
        rc = (d->lines->batch ? openai_batch_failure : failure_line)(d->lines->id, number, &why,
                                                                     &result, &ignored);
        remove_line(d, number);
        d->job->n_failed++;
        if (rc == 0)
            rc = results_put(d->job->results, number, &result, &ignored);
    }
    if (rc == 0)
        rc = results_end(d->job->results, &ignored);
}

static void close_dispatcher(struct dispatcher *d)
{
    free(d->in_flight);
    free(d->hash);
    mailbox_close(&d->mailbox);
    free(d);
}

/* Thread function of rank 0's worker, which reports errors to the dispatcher by message. */
static void *work(void *arg)
{
    struct dispatcher *d = arg;
    struct err ignored;
    return worker_run(d->serve, &d->mailbox, "", &ignored) < 0 ? arg : NULL;
}

int dispatch_lines(const struct serve *serve, struct dispatch *job, struct err *err)
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
    *d = (struct dispatcher){.serve = serve, .job = job, .in_flight = in_flight};
    mailbox_open(&d->mailbox, job->ranks);
    if (thread_start(&thread, work, d) != 0) {
        close_dispatcher(d);
        return err_set(err, "cannot start a thread for the worker of rank 0");
    }
    if (dispatch(d, err) < 0 || send_to_all(d, MESSAGE_BYE, err) < 0) {
        fail_lines(d, err); /* the worker's thread may still use `d`, so it is not freed */
        return -1;
    }
    pthread_join(thread, NULL);
    if (d->lines) /* after an interrupt: lines that no rank has taken */
        fail_lines(d, &err_interrupted);
    job->counts.gen.logits_hash = gen_run_hash(d->hash, d->n_hashes);
    close_dispatcher(d);
    return 0;
}
