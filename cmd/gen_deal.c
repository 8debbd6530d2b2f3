/* --split requests: rank 0 reads the lines, deals each to the rank that has the fewest under way as places become free, and writes
 * the results. It generates, too, in a thread of its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "decode/request.h"
#include "decode/result.h"
#include "gen_counts.h"
#include "gen_lines.h"
#include "gen_ranks.h"
#include "gen_results.h"
#include "gen_worker.h"

/* After an interrupt: results that come in this time are written. A launcher that ends a run kills after a second. */
enum { LAST_MS = 700 };

/* A line that was dealt and has no result yet. */
struct dealt {
    struct dealt *next;
    uint64_t number;
    int rank;
    struct buf text; /* of which a result that has to tell of a failure takes the id */
};

struct dealer {
    struct gen *gen;
    struct post post;
    struct lines in;
    struct results out;
    struct dealt *dealt;
    size_t *under_way; /* [ranks] */
    size_t places;     /* of a rank */
    bool input_ended;
    int n_ended;
    struct hash *hash; /* by line */
    size_t n_hashes, hashes_cap;
    struct rank_counts counts;
};

/* ---- results ---- */

/* The line's one result is there: it is under way no longer. False: it was not. */
static bool take_off(struct dealer *d, uint64_t number)
{
    for (struct dealt **at = &d->dealt, *line; (line = *at); at = &line->next)
        if (line->number == number) {
            *at = line->next;
            d->under_way[line->rank]--;
            buf_release(&line->text);
            free(line);
            return true;
        }
    return false;
}

static int take_result(struct dealer *d, const struct message *message, struct err *err)
{
    struct jsonl_result result;
    struct buf text = {0};
    if (message->bytes < sizeof result)
        return err_set(err, "rank %d sends what is no result", message->from);
    memcpy(&result, message->data, sizeof result);
    if (!take_off(d, result.number))
        return 0;
    d->hash[result.number] = result.logits_hash;
    d->gen->n_failed += result.failed;
    if (buf_add(&text, message->data + sizeof result, message->bytes - sizeof result, err) < 0)
        return -1;
    return results_put(&d->out, result.number, &text, err);
}

static int take_counts(struct dealer *d, const struct message *message, struct err *err)
{
    struct rank_counts counts;
    if (message->bytes != sizeof counts)
        return err_set(err, "rank %d counts in another way: it is of another version", message->from);
    memcpy(&counts, message->data, sizeof counts);
    rank_counts_add(&d->counts, &counts);
    d->n_ended++;
    return 0;
}

static int take_message(struct dealer *d, const struct message *message, struct err *err)
{
    switch ((enum post_kind)message->kind) {
    case POST_RESULT: return take_result(d, message, err);
    case POST_ENDED: return take_counts(d, message, err);
    case POST_FAILED: return err_set(err, "%.*s", (int)message->bytes, message->data);
    case POST_LINE:
    case POST_LONG_LINE:
    case POST_NO_MORE:
    case POST_BYE: break;
    }
    return err_set(err, "rank %d sends a message that only rank 0 sends", message->from);
}

/* 1: something came. */
static int take_all(struct dealer *d, struct err *err)
{
    struct message *message;
    int came = 0;
    while (post_take(&d->post, true, &message, err) == 0) {
        if (!message)
            return came;
        const int rc = take_message(d, message, err);
        free(message);
        if (rc < 0)
            return -1;
        came = 1;
    }
    return -1;
}

/* ---- lines ---- */

/* The rank that has the fewest under way; -1: none has a place. Of equal ones the last, for rank 0 has the dealing, too. */
static int freest(const struct dealer *d)
{
    int rank = -1;
    for (int r = d->post.ranks->size - 1; r >= 0; r--)
        if (d->under_way[r] < (rank < 0 ? d->places : d->under_way[rank]))
            rank = r;
    return rank;
}

static int remember(struct dealer *d, const char *text, size_t len, int rank, struct err *err)
{
    if (results_expect(&d->out, err) < 0 ||
        mem_grow(&d->hash, &d->hashes_cap, d->n_hashes, sizeof *d->hash, err) < 0)
        return -1;
    d->hash[d->n_hashes++] = (struct hash){0};
    struct dealt *line = calloc(1, sizeof *line);
    if (!line)
        return err_set(err, "out of memory for a request");
    *line = (struct dealt){.next = d->dealt, .number = d->gen->n_requests++, .rank = rank};
    d->dealt = line;
    d->under_way[rank]++;
    return text ? buf_add(&line->text, text, len, err) : 0;
}

static int send_all(struct dealer *d, enum post_kind kind, struct err *err)
{
    int rc = 0;
    for (int r = 0; r < d->post.ranks->size && rc == 0; r++)
        rc = post_send(&d->post, r, kind, NULL, 0, NULL, 0, err);
    return rc;
}

/* 1: a line was dealt, or there are no more. */
static int deal_one(struct dealer *d, struct err *err)
{
    const int rank = freest(d);
    const char *text;
    size_t len;
    if (d->input_ended || rank < 0)
        return 0;
    const int got = lines_next(&d->in, false, &text, &len, err);
    if (got == GEN_LATER || got < 0)
        return got < 0 ? -1 : 0;
    if (got == GEN_END) {
        d->input_ended = true;
        return send_all(d, POST_NO_MORE, err) < 0 ? -1 : 1;
    }
    if (remember(d, text, len, rank, err) < 0)
        return -1;
    return post_send(&d->post, rank, text ? POST_LINE : POST_LONG_LINE, &d->dealt->number,
                     sizeof d->dealt->number, text, len, err) < 0
               ? -1
               : 1;
}

static int deal(struct dealer *d, struct err *err)
{
    double last = 0;
    while (d->n_ended < d->post.ranks->size) {
        const int came = take_all(d, err), dealt = came < 0 || cli_interrupted ? 0 : deal_one(d, err);
        if (came < 0 || dealt < 0)
            return -1;
        if (cli_interrupted && last == 0)
            last = clock_ms() + LAST_MS;
        if (cli_interrupted && clock_ms() > last)
            return err_set(err, "a rank is gone, or did not end in time: its requests say so");
        if (!came && !dealt)
            post_pause();
    }
    return 0;
}

/* ---- the end ---- */

/* The id of the line, as JSON, or NULL. */
static char *id_of(const struct dealer *d, const struct dealt *line)
{
    struct request request;
    struct err none;
    char *id = NULL;
    if (!line->text.data)
        return NULL;
    if (request_open(&request, line->text.data, line->text.len, d->gen->options->lenient, &none) == 0 ||
        request.id)
        id = request.id ? jsonl_spell_id(request.id, &none) : NULL;
    request_close(&request);
    return id;
}

/* Lines that have no result get one that says why. */
static int fail_rest(struct dealer *d, const char *why, struct err *err)
{
    int rc = 0;
    while (d->dealt && rc == 0) {
        struct buf result = {0};
        const uint64_t number = d->dealt->number;
        char *id = id_of(d, d->dealt);
        rc = failure_line(id, number, why, &result, err);
        free(id);
        take_off(d, number);
        d->gen->n_failed++;
        if (rc == 0)
            rc = results_put(&d->out, number, &result, err);
    }
    return rc;
}

static void end_badly(struct dealer *d, const char *why)
{
    struct err none;
    char text[sizeof none.text + 32];
    snprintf(text, sizeof text, "the run ended: %s", why);
    if (fail_rest(d, cli_interrupted ? GEN_INTERRUPTED : text, &none) < 0 ||
        results_end(&d->out, &none) < 0)
        return; /* the run's error is told, not this one */
}

static int report(struct dealer *d, struct err *err)
{
    d->counts.gen.logits_hash = gen_run_hash(d->hash, d->n_hashes);
    d->gen->counts = &d->counts;
    const int rc = gen_report(d->gen, &d->counts.gen, err);
    d->gen->counts = NULL;
    return rc;
}

/* ---- both at once ---- */

struct own_worker {
    struct gen *gen;
    struct post *post;
};

static void *work(void *arg)
{
    const struct own_worker *own = arg;
    struct err err;
    return worker_run(own->gen, own->post, &err) < 0 ? arg : NULL; /* what went wrong was sent */
}

/* On an error the thread is left to itself: it may be in the middle of a long step, and the program ends. */
static int deal_and_work(struct dealer *d, struct err *err)
{
    static struct own_worker own;
    pthread_t thread;
    own = (struct own_worker){d->gen, &d->post};
    if (pthread_create(&thread, NULL, work, &own) != 0)
        return err_set(err, "no thread can be had to generate in");
    if (deal(d, err) < 0 || send_all(d, POST_BYE, err) < 0)
        return -1;
    pthread_join(thread, NULL);
    return report(d, err);
}

static int open_dealer(struct dealer *d, struct err *err)
{
    const size_t n = (size_t)d->post.ranks->size;
    const struct gen_options *o = d->gen->options;
    d->out.unordered = o->unordered;
    d->places = d->gen->session.options.batch / size_max(1, o->beams);
    if (!(d->under_way = calloc(n, sizeof *d->under_way)))
        return err_set(err, "out of memory for %zu ranks", n);
    return lines_open(&d->in, o->file, err);
}

static void close_dealer(struct dealer *d)
{
    while (d->dealt)
        take_off(d, d->dealt->number);
    results_release(&d->out);
    lines_close(&d->in);
    free(d->under_way);
    free(d->hash);
    post_close(&d->post);
}

static int run_dealer(struct gen *gen, struct err *err)
{
    static struct dealer d; /* the worker's thread may outlive this call */
    d.gen = gen;
    post_open(&d.post, gen->ranks);
    const int rc = open_dealer(&d, err) < 0 ? -1 : deal_and_work(&d, err);
    if (rc < 0)
        end_badly(&d, err->text);
    else
        close_dealer(&d);
    return rc;
}

int gen_jsonl_ranks(struct gen *gen, struct err *err)
{
    if (gen->ranks->rank == 0)
        return run_dealer(gen, err);
    struct post post;
    post_open(&post, gen->ranks);
    const int rc = worker_run(gen, &post, err);
    post_close(&post);
    return rc;
}
