/* Exchanges: requests of clients on their way to a lane, and its answers on their way back. */
#include <microhttpd.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/openai.h"
#include "serve/server.h"

/* Lets HTTP go on with an exchange that has something for it. */
static void wake(const struct server *server, struct exchange *x)
{
    if (x->suspended) {
        MHD_resume_connection(x->connection);
        (void)!write(server->resumed, &(uint64_t){1}, sizeof(uint64_t));
    }
    x->suspended = false;
}

struct exchange *exchange_open(struct server *server, struct MHD_Connection *connection,
                               const struct endpoint *endpoint)
{
    struct exchange *x = NULL;
    pthread_mutex_lock(&server->lock);
    const bool limited = endpoint->lane != NO_LANE;
    if ((!limited || server->n_exchanges < server->options->max_requests) &&
        (x = calloc(1, sizeof *x))) {
        *x = (struct exchange){.server = server,
                               .connection = connection,
                               .endpoint = endpoint,
                               .status = OPENAI_BAD_REQUEST, /* of one that is not complete */
                               .start_ms = clock_ms(),
                               .next = server->exchanges,
                               .link = &server->exchanges};
        if (x->next)
            x->next->link = &x->next;
        server->exchanges = x;
        server->n_exchanges++;
    }
    pthread_mutex_unlock(&server->lock);
    return x;
}

static void count(struct serve_counters *c, const struct exchange *x)
{
    c->requests[x->status / 100 % ARRAY_LEN(c->requests)]++;
    c->cancelled += x->gone;
    c->prompt_tokens += x->n_prompt;
    c->cached_tokens += x->n_cached;
    c->generated_tokens += x->n_generated;
    c->total_s += (clock_ms() - x->start_ms) / 1e3;
    c->first_tokens += x->first_ms > 0;
    c->first_s += x->first_ms > 0 ? (x->first_ms - x->start_ms) / 1e3 : 0;
}

/* One line per request, without what it says. */
static void log_exchange(const struct server *server, const struct exchange *x)
{
    char tokens[120] = "", first[40] = "";
    if (server->options->gen.quiet)
        return;
    if (x->submitted)
        snprintf(tokens, sizeof tokens, ", prompt %zu (%zu cached), generated %zu", x->n_prompt,
                 x->n_cached, x->n_generated);
    if (x->first_ms > 0)
        snprintf(first, sizeof first, ", first event after %.0f ms", x->first_ms - x->start_ms);
    cli_say(stderr, "%s: %s %s %d%s%s%s, %.0f ms\n", server->gen->program->name,
            x->endpoint && x->submitted ? "POST" : "request of",
            x->endpoint ? x->endpoint->url : "another URL", x->status, x->gone ? " client gone" : "",
            tokens, first, clock_ms() - x->start_ms);
}

void exchange_refused(struct server *server, const struct endpoint *endpoint, int status)
{
    const struct exchange x = {.endpoint = endpoint, .status = status, .start_ms = clock_ms()};
    pthread_mutex_lock(&server->lock);
    count(&server->counters, &x);
    log_exchange(server, &x);
    pthread_mutex_unlock(&server->lock);
}

bool exchange_add(struct exchange *x, const char *body, size_t len)
{
    struct server *server = x->server;
    struct err ignored;
    pthread_mutex_lock(&server->lock);
    if (!x->too_long && len <= server->most_body - x->body.len &&
        len <= MOST_BODIES * server->most_body - server->body_bytes &&
        buf_add(&x->body, body, len, &ignored) == 0) {
        server->body_bytes += len;
    } else {
        x->too_long = true;
        x->discarded += len;
        server->body_bytes -= x->body.len;
        buf_release(&x->body);
    }
    pthread_mutex_unlock(&server->lock);
    return x->discarded <= MOST_DISCARDED;
}

/* Frees an exchange with which both sides are done. */
static void release(struct server *server, struct exchange *x)
{
    if (x->connection || (x->submitted && !x->served))
        return;
    count(&server->counters, x);
    log_exchange(server, x);
    *x->link = x->next;
    if (x->next)
        x->next->link = x->link;
    server->n_exchanges--;
    server->body_bytes -= x->body.len;
    buf_release(&x->body);
    buf_release(&x->out);
    free(x);
}

void exchange_close(struct server *server, struct exchange *x)
{
    pthread_mutex_lock(&server->lock);
    x->gone = x->gone || (x->submitted && !x->served);
    x->connection = NULL;
    x->suspended = false;
    __atomic_store_n(&x->cancelled, 1, __ATOMIC_RELAXED);
    release(server, x);
    pthread_mutex_unlock(&server->lock);
}

static const char ending[] = "the server is ending";

bool exchange_submit(struct server *server, struct exchange *x)
{
    struct lane *lane = &server->lane[x->endpoint->lane];
    struct err ignored;
    pthread_mutex_lock(&server->lock);
    const bool ended = lane->ended;
    if (ended) {
        x->submitted = x->served = true;
        x->status = OPENAI_UNAVAILABLE;
        (void)!openai_put_error(x->status, ending, &x->out, &ignored);
        pthread_mutex_unlock(&server->lock);
        return false;
    }
    x->number = server->n_submitted++;
    snprintf(x->id, sizeof x->id, "%s-%s%llu", x->endpoint->id, server->process,
             (unsigned long long)x->number);
    x->submitted = x->suspended = true;
    *lane->last = x;
    lane->last = &x->behind;
    MHD_suspend_connection(x->connection);
    pthread_cond_signal(&lane->arrived);
    pthread_mutex_unlock(&server->lock);
    return true;
}

/* ---- serve_io ---- */

static int next_request(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct lane *lane = arg;
    struct server *server = lane->server;
    (void)err;
    buf_release(&lane->body);
    pthread_mutex_lock(&server->lock);
    while (!lane->first && wait && !server->closing)
        pthread_cond_wait(&lane->arrived, &server->lock);
    struct exchange *x = lane->first;
    const int none = server->closing ? GEN_END : GEN_LATER;
    if (x) {
        lane->first = x->behind;
        if (!lane->first)
            lane->last = &lane->first;
        x->taken = true;
        lane->body = x->body;
        server->body_bytes -= x->body.len;
        x->body = (struct buf){0};
        *input = (struct serve_input){.json = buf_text(&lane->body),
                                      .len = lane->body.len,
                                      .number = x->number,
                                      .url = x->endpoint->url,
                                      .id = x->id,
                                      .cancelled = &x->cancelled};
    }
    pthread_mutex_unlock(&server->lock);
    return x ? GEN_REQUEST : none;
}

/* The exchange of a request in flight, which has not been served. */
static struct exchange *find(const struct server *server, uint64_t number)
{
    struct exchange *x = server->exchanges;
    while (x && (!x->submitted || x->served || x->number != number))
        x = x->next;
    return x;
}

/* Appends lines as server-sent events. */
static int add_events(struct buf *out, const char *text, size_t len, struct err *err)
{
    int rc = 0;
    for (const char *at = text, *end = text + len, *next; at < end && rc == 0; at = next) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        next = feed ? feed + 1 : end;
        rc = buf_addf(out, err, "data: ");
        rc = rc < 0 ? rc : buf_add(out, at, (size_t)((feed ? feed : end) - at), err);
        rc = rc < 0 ? rc : buf_add(out, "\n\n", 2, err);
    }
    return rc;
}

/* Adds to what a client gets; nothing if it is gone. */
static int add_output(struct exchange *x, const char *text, size_t len, struct err *err)
{
    return !x->connection ? 0
           : x->streams   ? add_events(&x->out, text, len, err)
                          : buf_add(&x->out, text, len, err);
}

static int put_event(void *arg, uint64_t number, struct buf *text, struct err *err)
{
    struct server *server = ((struct lane *)arg)->server;
    pthread_mutex_lock(&server->lock);
    struct exchange *x = find(server, number);
    x->streams = true;
    if (x->first_ms <= 0)
        x->first_ms = clock_ms();
    const int rc = add_output(x, text->data, text->len, err);
    wake(server, x);
    pthread_mutex_unlock(&server->lock);
    buf_release(text);
    return rc;
}

static void end_exchange(struct server *server, struct exchange *x, int status)
{
    x->status = status;
    x->served = true;
    wake(server, x);
    release(server, x);
}

static int put_result(void *arg, const struct serve_result *result, struct buf *text, struct err *err)
{
    static const char done[] = "[DONE]";
    struct server *server = ((struct lane *)arg)->server;
    pthread_mutex_lock(&server->lock);
    struct exchange *x = find(server, result->number);
    const size_t before = x->out.len;
    int rc = add_output(x, buf_text(text), text->len, err);
    if (rc == 0 && x->streams)
        rc = add_output(x, done, sizeof done - 1, err);
    x->n_prompt = result->n_prompt;
    x->n_cached = result->n_cached;
    x->n_generated = result->n_generated;
    if (rc == 0)
        end_exchange(server, x, result->status);
    else
        x->out.len = before; /* lane_abandon() answers */
    pthread_mutex_unlock(&server->lock);
    buf_release(text);
    return rc;
}

struct serve_io lane_io(struct lane *lane)
{
    return (struct serve_io){.next = next_request, .put = put_result, .event = put_event, .arg = lane};
}

static void refuse_all(struct lane *lane, int status, const char *why)
{
    struct serve_input input;
    struct err ignored;
    while (next_request(lane, false, &input, &ignored) == GEN_REQUEST) {
        const struct serve_result result = {.number = input.number, .failed = true, .status = status};
        struct buf text = {0};
        if (openai_put_error(status, why, &text, &ignored) < 0 ||
            put_result(lane, &result, &text, &ignored) < 0)
            buf_release(&text);
    }
}

void lane_refuse(struct lane *lane, int status, const struct err *why)
{
    refuse_all(lane, status, why->text);
}

void lane_abandon(struct lane *lane, const struct err *why)
{
    struct server *server = lane->server;
    pthread_mutex_lock(&server->lock);
    for (struct exchange *x = server->exchanges, *next; x; x = next) {
        next = x->next;
        if (!x->taken || x->served || &server->lane[x->endpoint->lane] != lane)
            continue;
        struct buf text = {0};
        struct err ignored;
        if (openai_put_error(OPENAI_SERVER_ERROR, why->text, &text, &ignored) == 0)
            (void)add_output(x, text.data, text.len, &ignored);
        buf_release(&text);
        end_exchange(server, x, OPENAI_SERVER_ERROR);
    }
    pthread_mutex_unlock(&server->lock);
}

void lane_end(struct lane *lane)
{
    pthread_mutex_lock(&lane->server->lock);
    lane->ended = true;
    pthread_mutex_unlock(&lane->server->lock);
    refuse_all(lane, OPENAI_UNAVAILABLE, ending);
}

bool lane_wait(struct lane *lane)
{
    struct server *server = lane->server;
    pthread_mutex_lock(&server->lock);
    while (!lane->first && !server->closing)
        pthread_cond_wait(&lane->arrived, &server->lock);
    const bool any = lane->first;
    pthread_mutex_unlock(&server->lock);
    return any;
}

void lane_open(struct lane *lane, struct server *server)
{
    *lane = (struct lane){.server = server, .last = &lane->first};
    pthread_cond_init(&lane->arrived, NULL);
}

void lane_close(struct lane *lane)
{
    buf_release(&lane->body);
    pthread_cond_destroy(&lane->arrived);
}

void server_close_lanes(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    server->closing_ms = clock_ms();
    for (size_t i = 0; i < ARRAY_LEN(server->lane); i++)
        pthread_cond_broadcast(&server->lane[i].arrived);
    pthread_mutex_unlock(&server->lock);
}
