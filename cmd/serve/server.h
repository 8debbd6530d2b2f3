/* Modules of bmc-serve. One thread speaks HTTP, the main thread generates; exchanges go between them.
 *
 * Files, lowest first: listen (sockets, systemd); exchange (requests and answers between the threads); metrics; http
 * (libmicrohttpd); bmc-serve (options, and the lanes that answer). */
#pragma once

#include <pthread.h>
#include <signal.h>

#include "decode/rerank.h"
#include "gen/gen.h"

struct MHD_Connection;
struct MHD_Daemon;
struct server;

struct serve_cli {
    struct gen_options gen; /* first, since shared rows of the option table refer to it */
    size_t port;
    const char *socket, *listen; /* NULL: not given */
    const char *api_key_file, *alias;
    size_t max_requests, max_connections, max_tokens;
    const char *max_body; /* NULL: not given */
    double time_limit, drain;
    size_t text_bytes; /* of --memory, for embeddings and reranking; 0: no limit */
};

/* ---- sockets ---- */

/* Where a server listens. */
struct listener {
    int fd;
    bool local; /* only this machine reaches it */
    bool unix_socket;
    char name[128]; /* for people */
    char path[108]; /* of a socket to be removed; or "" */
};

/* Opens the socket that systemd has passed, or that the options name. */
int listener_open(struct listener *listener, const struct serve_cli *options, struct err *err) MUST_USE;
void listener_close(struct listener *listener);

/* Tells systemd of a state, as "READY=1", if it asks to be told. */
void notify_systemd(const char *state);

/* ---- exchanges ---- */

enum method { GET, POST };

/* A URL that the server answers. */
struct endpoint {
    const char *url;
    enum method method;
    bool open;                                                      /* without a key */
    enum { NO_LANE, GENERATION, EMBEDDING, RERANKING, LANES } lane; /* NO_LANE: answer() answers, */
    /* at once: sets the type and appends the text, or returns the status of an error. */
    int (*answer)(struct server *server, const char *url, const char **type, struct buf *text,
                  struct err *err);
    const char *id; /* first part of the ids of answers */
};

/* A request of a client and its answer, between HTTP and the lane that serves it; it is freed when both are done. */
struct exchange {
    struct server *server;
    struct exchange *next, **link;     /* of all that are in progress */
    struct exchange *behind;           /* in its lane */
    struct MHD_Connection *connection; /* NULL: HTTP is done with it */
    const struct endpoint *endpoint;
    uint64_t number;
    char id[64];
    struct buf body, out;
    size_t sent;      /* bytes of `out` */
    size_t discarded; /* bytes of the body */
    bool too_long;    /* the body is */
    bool submitted;   /* the lane has it, or had it */
    bool taken;       /* from the lane's queue */
    bool served;      /* the lane is done with it */
    bool suspended;   /* its connection is, until there is an answer */
    bool streams;     /* answered by events */
    bool gone;        /* the client is */
    volatile sig_atomic_t cancelled;
    int status;
    size_t n_prompt, n_cached, n_generated;
    double start_ms, first_ms; /* 0: no event yet */
};

/* Requests that wait, for one thread that serves them. */
struct lane {
    struct server *server;
    struct exchange *first, **last;
    struct buf body; /* of the request that is being read */
    pthread_cond_t arrived;
    bool ended; /* its thread reads no more */
};

struct serve_counters {
    uint64_t requests[6]; /* by the first digit of the status */
    uint64_t cancelled;
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t first_tokens;
    double first_s, total_s;
};

struct server {
    const struct serve_cli *options;
    struct gen *gen;
    struct reranker reranker;
    struct err no_reranker; /* why there is none; empty: there is one */
    struct listener listener;
    struct MHD_Daemon *daemon;
    int resumed;      /* an eventfd: connections were resumed */
    struct hash *key; /* [n_keys] hashes of API keys; 0: none are needed */
    size_t n_keys, most_body;
    char model[256];      /* what /v1/models calls it */
    char process[17];     /* differs from other processes', in ids of answers */
    pthread_mutex_t lock; /* of all below */
    struct exchange *exchanges;
    size_t n_exchanges, body_bytes; /* `body_bytes`: of bodies that no lane has taken */
    uint64_t n_submitted;
    struct lane lane[LANES];
    struct serve_counters counters;
    bool closing; /* no further requests are taken */
    double closing_ms;
    bool ended;                 /* the lanes have ended */
    volatile sig_atomic_t stop; /* requests in flight end now */
};

enum {
    MOST_BODIES = 8,          /* at a time, of the longest */
    MOST_DISCARDED = 16 << 20 /* bytes of a body that is too long */
};

/* A new exchange; NULL: there are too many, or no memory. */
struct exchange *exchange_open(struct server *server, struct MHD_Connection *connection,
                               const struct endpoint *endpoint);

/* Counts and logs a request that is refused by its head; the endpoint may be NULL. */
void exchange_refused(struct server *server, const struct endpoint *endpoint, int status);

/* Adds to the body. One that is too long, or for which there is no room, is read to its end, but not kept, so that the
 * client gets an answer; false: it has no end. */
bool exchange_add(struct exchange *exchange, const char *body, size_t len);

/* HTTP is done with it. */
void exchange_close(struct server *server, struct exchange *exchange);

/* Gives a request with its body to its lane, and suspends its connection; false: the lane has ended, and the answer
 * says so. */
bool exchange_submit(struct server *server, struct exchange *exchange);

/* serve_io of a lane. */
struct serve_io lane_io(struct lane *lane);

/* Answers the requests that wait with an error. */
void lane_refuse(struct lane *lane, int status, const struct err *why);

/* Answers the requests in flight, of which there are some if their results could not be made, with an error. */
void lane_abandon(struct lane *lane, const struct err *why);

/* The same for those that wait and all further ones: the lane's thread ends. */
void lane_end(struct lane *lane);

/* Waits for a request; false: there will be none. */
bool lane_wait(struct lane *lane);

void lane_open(struct lane *lane, struct server *server);
void lane_close(struct lane *lane);

/* Closes the server's lanes for further requests, which may end at once. */
void server_close_lanes(struct server *server);

/* ---- HTTP ---- */

/* Starts the thread that speaks HTTP; ends it when answers have been sent, or after some seconds. */
int http_start(struct server *server, pthread_t *thread, struct err *err) MUST_USE;
void http_end(struct server *server, pthread_t thread);

/* ---- metrics ---- */

/* endpoint.answer() of /metrics, in Prometheus' text format. */
int metrics_answer(struct server *server, const char *url, const char **type, struct buf *text,
                   struct err *err);
