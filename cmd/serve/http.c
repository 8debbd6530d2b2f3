/* HTTP: routes, keys, bodies, answers and events, by libmicrohttpd in one thread. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads.h"
#include "serve/openai.h"
#include "serve/server.h"

enum {
    UNAUTHORIZED = 401,
    FORBIDDEN = 403,
    NOT_FOUND = 404,
    NOT_ALLOWED = 405,
    TOO_LARGE = 413,
    IDLE_S = 60,  /* after which a client that neither sends nor reads is dropped */
    TICK_MS = 50, /* between checks of clients, with requests in flight */
    IDLE_TICK_MS = 200,
    LAST_MS = 3000 /* for which answers are still sent after the end */
};

static const char type_json[] = "application/json";

/* ---- answers ---- */

static enum MHD_Result respond(struct MHD_Connection *connection, int status, const char *type,
                               const struct buf *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text->len, text->data, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == OPENAI_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const enum MHD_Result queued = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, int status, const char *message)
{
    AUTO(buf_release) struct buf text = {0};
    struct err ignored;
    return openai_put_error(status, message, &text, &ignored) < 0
               ? MHD_NO
               : respond(connection, status, type_json, &text);
}

/* MHD_ContentReaderCallback of events: gives what there is, or waits for more. */
static ssize_t read_events(void *arg, uint64_t at, char *to, size_t size)
{
    struct exchange *x = arg;
    struct server *server = x->server;
    ssize_t n = 0;
    (void)at;
    pthread_mutex_lock(&server->lock);
    const size_t left = x->out.len - x->sent;
    if (left) {
        n = (ssize_t)size_min(left, size);
        memcpy(to, x->out.data + x->sent, (size_t)n);
        x->sent += (size_t)n;
        if (x->sent == x->out.len) {
            buf_clear(&x->out);
            x->sent = 0;
        }
    } else if (x->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (x->served) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&server->lock);
    return n;
}

static enum MHD_Result respond_events(struct exchange *x)
{
    enum { BLOCK = 4096 };
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_events, x, NULL);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    const enum MHD_Result queued = MHD_queue_response(x->connection, OPENAI_OK, response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- endpoints ---- */

static int answer_models(struct server *server, const char *url, const char **type, struct buf *text,
                         struct err *err)
{
    static const char prefix[] = "/v1/models/";
    (void)type;
    if (strncmp(url, prefix, sizeof prefix - 1) == 0 &&
        strcmp(url + sizeof prefix - 1, server->model) != 0)
        return NOT_FOUND;
    json_t *model =
        json_pack("{s:o, s:s, s:I, s:s}", "id", json_text(server->model, strlen(server->model)),
                  "object", "model", "created", (json_int_t)server->gen->now, "owned_by", "bmc");
    AUTO(json_auto)
    json_t *answer =
        url[sizeof prefix - 2] ? model : json_pack("{s:s, s:[o]}", "object", "list", "data", model);
    return answer ? json_write_line(answer, text, err) : err_no_memory(err, "a list of models");
}

static int answer_health(struct server *server, const char *url, const char **type, struct buf *text,
                         struct err *err)
{
    (void)url, (void)type;
    return server->closing ? OPENAI_UNAVAILABLE : buf_addf(text, err, "{\"status\":\"ok\"}\n");
}

static const struct endpoint endpoints[] = {
    {"/v1/chat/completions", POST, false, GENERATION, NULL, "chatcmpl"},
    {"/v1/completions", POST, false, GENERATION, NULL, "cmpl"},
    {"/v1/embeddings", POST, false, EMBEDDING, NULL, "embd"},
    {"/v1/rerank", POST, false, RERANKING, NULL, "rerank"},
    {"/v1/models", GET, false, NO_LANE, answer_models, NULL},
    {"/v1/models/", GET, false, NO_LANE, answer_models, NULL}, /* and a name */
    {"/health", GET, true, NO_LANE, answer_health, NULL},
    {"/metrics", GET, false, NO_LANE, metrics_answer, NULL},
};

static const struct endpoint *find_endpoint(const char *url)
{
    for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
        const size_t len = strlen(endpoints[i].url);
        if (endpoints[i].url[len - 1] == '/' ? strncmp(url, endpoints[i].url, len) == 0
                                             : strcmp(url, endpoints[i].url) == 0)
            return &endpoints[i];
    }
    return NULL;
}

/* ---- who may ask ---- */

/* In constant time: whether a request has one of the keys. */
static bool has_key(const struct server *server, struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    bool found = false;
    if (!given || strncasecmp(given, scheme, sizeof scheme - 1) != 0)
        return false;
    const struct hash hash = hash_of(given + sizeof scheme - 1, strlen(given + sizeof scheme - 1));
    for (size_t i = 0; i < server->n_keys; i++)
        found |= sodium_memcmp(hash.byte, server->key[i].byte, sizeof hash.byte) == 0;
    return found;
}

/* Whether a host, with a port or without, is this machine by a name that no other one can have. */
static bool is_this_machine(const char *host)
{
    static const char *const names[] = {"localhost", "[::1]"};
    struct in_addr ip;
    char name[64];
    const size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (len >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)len, host);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return inet_pton(AF_INET, name, &ip) == 1 && ntohl(ip.s_addr) >> 24 == 127;
}

/* Without keys, whether a request may come from a page of another site in a browser on this machine. */
static bool is_foreign(const struct server *server, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *origin =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    const char *site = origin ? strstr(origin, "://") : NULL;
    if (server->n_keys)
        return false;
    return (origin && !(site && is_this_machine(site + 3))) ||
           (host && !server->listener.unix_socket && !is_this_machine(host));
}

/* ---- requests ---- */

/* The length of the body; 0: unknown. */
static uint64_t content_length(struct MHD_Connection *connection)
{
    const char *text =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Bytes that bodies may still have which wait for their lane. */
static uint64_t room_for_bodies(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    const uint64_t room = MOST_BODIES * server->most_body - server->body_bytes;
    pthread_mutex_unlock(&server->lock);
    return room;
}

static const char too_large[] =
    "the body is longer than %zu bytes: bmc-serve --max-body sets the limit";

/* Checks a request by its head; 0: it may go on, else the status and the reason. */
static int check_head(struct server *server, struct MHD_Connection *connection,
                      const struct endpoint *endpoint, const char *method, char *why, size_t size)
{
    if (is_foreign(server, connection)) {
        snprintf(why, size, "the request names another host or comes from another site's page");
        return FORBIDDEN;
    }
    if (server->n_keys && !(endpoint && endpoint->open) && !has_key(server, connection)) {
        snprintf(why, size, "a key of --api-key-file is needed: Authorization: Bearer KEY");
        return UNAUTHORIZED;
    }
    if (!endpoint) {
        snprintf(why, size, "there is nothing at this URL: bmc-serve(1) lists those that there are");
        return NOT_FOUND;
    }
    if (strcmp(method, endpoint->method == POST ? MHD_HTTP_METHOD_POST : MHD_HTTP_METHOD_GET) != 0) {
        snprintf(why, size, "%s takes %s", endpoint->url, endpoint->method == POST ? "POST" : "GET");
        return NOT_ALLOWED;
    }
    if (content_length(connection) > server->most_body + MOST_DISCARDED) {
        snprintf(why, size, too_large, server->most_body);
        return TOO_LARGE;
    }
    if (content_length(connection) <= server->most_body &&
        content_length(connection) > room_for_bodies(server)) {
        snprintf(why, size, "too many long bodies are waiting: try again");
        return OPENAI_UNAVAILABLE;
    }
    if (endpoint->method == POST && server->closing) {
        snprintf(why, size, "the server is ending");
        return OPENAI_UNAVAILABLE;
    }
    return 0;
}

static enum MHD_Result begin(struct server *server, struct MHD_Connection *connection, const char *url,
                             const char *method, void **context)
{
    const struct endpoint *endpoint = find_endpoint(url);
    char why[160];
    const int status = check_head(server, connection, endpoint, method, why, sizeof why);
    if (status) {
        exchange_refused(server, endpoint, status);
        return refuse(connection, status, why);
    }
    if ((*context = exchange_open(server, connection, endpoint)))
        return MHD_YES;
    exchange_refused(server, endpoint, OPENAI_UNAVAILABLE);
    return refuse(connection, OPENAI_UNAVAILABLE, "too many requests are in progress: try again");
}

static enum MHD_Result answer_now(struct server *server, struct exchange *x, const char *url)
{
    AUTO(buf_release) struct buf text = {0};
    const char *type = type_json;
    struct err err;
    const int rc = x->endpoint->answer(server, url, &type, &text, &err);
    x->status = rc < 0 ? OPENAI_SERVER_ERROR : rc > 0 ? rc : OPENAI_OK;
    return rc == 0 ? respond(x->connection, OPENAI_OK, type, &text)
                   : refuse(x->connection, x->status,
                            rc < 0                   ? err.text
                            : x->status == NOT_FOUND ? "there is no such model"
                                                     : "the server is ending");
}

/* MHD_AccessHandlerCallback: called for the head of a request, for each part of its body, for its end, and when there is
 * an answer. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body, size_t *len,
                              void **context)
{
    struct server *server = arg;
    struct exchange *x = *context;
    (void)version;
    if (!x)
        return begin(server, connection, url, method, context);
    if (*len) {
        const bool fits = exchange_add(x, body, *len);
        *len = 0;
        return fits ? MHD_YES : MHD_NO;
    }
    if (x->too_long) {
        char why[160];
        x->status = TOO_LARGE;
        snprintf(why, sizeof why, too_large, server->most_body);
        return refuse(connection, TOO_LARGE, why);
    }
    if (x->endpoint->answer)
        return answer_now(server, x, url);
    if (!x->submitted && exchange_submit(server, x))
        return MHD_YES;
    pthread_mutex_lock(&server->lock);
    const bool gone = x->gone, streams = x->streams;
    pthread_mutex_unlock(&server->lock);
    if (gone)
        return MHD_NO;
    return streams ? respond_events(x) : respond(connection, x->status, type_json, &x->out);
}

/* MHD_RequestCompletedCallback. */
static void completed(void *arg, struct MHD_Connection *connection, void **context,
                      enum MHD_RequestTerminationCode code)
{
    (void)connection, (void)code;
    if (*context)
        exchange_close(arg, *context);
    *context = NULL;
}

/* ---- the thread ---- */

/* Whether a client that waits for its answer has closed its connection. */
static bool has_left(const struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd client = {.fd = info ? info->connect_fd : -1, .events = POLLRDHUP};
    return poll(&client, 1, 0) > 0;
}

/* Ends requests of clients that are gone, or that take too long. Returns whether there are any requests. */
static bool check_exchanges(struct server *server)
{
    const double limit_ms = server->options->time_limit * 1e3, now = clock_ms();
    pthread_mutex_lock(&server->lock);
    for (struct exchange *x = server->exchanges; x; x = x->next) {
        if (!x->submitted || x->served)
            continue;
        if (limit_ms > 0 && now - x->start_ms > limit_ms)
            __atomic_store_n(&x->cancelled, 1, __ATOMIC_RELAXED);
        if (x->suspended && has_left(x)) {
            x->gone = true;
            __atomic_store_n(&x->cancelled, 1, __ATOMIC_RELAXED);
            x->suspended = false;
            MHD_resume_connection(x->connection);
        }
    }
    const bool any = server->exchanges != NULL;
    pthread_mutex_unlock(&server->lock);
    return any;
}

/* On a signal: takes no further requests, and after --drain seconds ends those in flight. */
static void check_end(struct server *server)
{
    if (!__atomic_load_n(&cli_interrupted, __ATOMIC_RELAXED))
        return;
    if (!server->closing) {
        notify_systemd("STOPPING=1");
        MHD_quiesce_daemon(server->daemon);
        server_close_lanes(server);
    }
    if (clock_ms() - server->closing_ms >= server->options->drain * 1e3)
        __atomic_store_n(&server->stop, 1, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
    struct server *server = arg;
    const int fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    double ended_ms = 0;
    for (bool any = false;;) {
        struct pollfd events[] = {{.fd = fd, .events = POLLIN},
                                  {.fd = server->resumed, .events = POLLIN}};
        uint64_t n;
        unsigned long long ms = IDLE_TICK_MS;
        if (MHD_get_timeout(server->daemon, &ms) != MHD_YES || ms > IDLE_TICK_MS)
            ms = IDLE_TICK_MS;
        (void)!poll(events, ARRAY_LEN(events), any && ms > TICK_MS ? TICK_MS : (int)ms);
        (void)!read(server->resumed, &n, sizeof n);
        MHD_run(server->daemon);
        any = check_exchanges(server);
        check_end(server);
        pthread_mutex_lock(&server->lock);
        const bool ended = server->ended;
        pthread_mutex_unlock(&server->lock);
        if (ended && ended_ms <= 0)
            ended_ms = clock_ms();
        if (ended && (!any || clock_ms() - ended_ms > LAST_MS))
            return NULL;
    }
}

int http_start(struct server *server, pthread_t *thread, struct err *err)
{
    const struct serve_cli *o = server->options;
    server->resumed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->resumed < 0)
        return err_errno(err, "cannot open an eventfd");
    server->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, handle, server,
                         MHD_OPTION_LISTEN_SOCKET, server->listener.fd, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned)o->max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                         MHD_OPTION_NOTIFY_COMPLETED, completed, server, MHD_OPTION_END);
    if (!server->daemon)
        return err_set(err, "cannot serve at %s: libmicrohttpd does not start", server->listener.name);
    if (thread_start(thread, run, server) == 0)
        return 0;
    MHD_stop_daemon(server->daemon);
    return err_set(err, "cannot start a thread for HTTP");
}

void http_end(struct server *server, pthread_t thread)
{
    pthread_mutex_lock(&server->lock);
    server->ended = true;
    pthread_mutex_unlock(&server->lock);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&server->lock);
    for (struct exchange *x = server->exchanges; x; x = x->next)
        if (x->suspended) { /* a daemon with suspended connections cannot stop */
            x->gone = true;
            x->suspended = false;
            MHD_resume_connection(x->connection);
        }
    pthread_mutex_unlock(&server->lock);
    MHD_quiesce_daemon(server->daemon); /* so that the socket stays the listener's */
    MHD_stop_daemon(server->daemon);
    close(server->resumed);
}
