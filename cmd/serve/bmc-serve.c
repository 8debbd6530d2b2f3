/* bmc-serve: a server for programs that speak OpenAI's protocol, on this machine. */
#include <sys/stat.h>

#include "base/clock.h"
#include "base/threads.h"
#include "cli.h"
#include "gen/gen_opts.h"
#include "kv/kv_footprint.h"
#include "serve/openai.h"
#include "serve/server.h"
#include "serve/text_lines.h"

#define SERVE_AT(field)     offsetof(struct serve_cli, field)
#define DEFAULT_PORT        8080
#define DEFAULT_REQUESTS    256
#define DEFAULT_CONNECTIONS 512
#define DEFAULT_DRAIN       30
#define DEFAULT_BODY_MIB    8
#define TEXT_PART           8 /* of --memory, for embeddings and reranking: one part in so many */

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Model"),
    GEN_OPTS_MODEL
    {OPT_TEXT, "alias", NULL, "NAME", "what /v1/models calls the model (default: the name of its file)", SERVE_AT(alias), 0, 0, NULL, false},
    TOKENS_INT("ctx-size", "c", context, 0, MANY, "context size, prompt and generated tokens together; 0 is the model's (default: the model's)"),
    HEADING("Server"),
    {OPT_SIZE, "port", NULL, "N", "port, on 127.0.0.1 (default " TEXT_OF(DEFAULT_PORT) ")", SERVE_AT(port), 0, 65535, NULL, false},
    {OPT_TEXT, "socket", NULL, "PATH", "listen at a UNIX socket instead", SERVE_AT(socket), 0, 0, NULL, false},
    {OPT_TEXT, "listen", NULL, "ADDRESS", "listen at this IP address instead, as 0.0.0.0, which needs --api-key-file", SERVE_AT(listen), 0, 0, NULL, false},
    {OPT_TEXT, "api-key-file", NULL, "FILE", "keys, one per line, of which requests need one", SERVE_AT(api_key_file), 0, 0, NULL, OPT_READS},
    {OPT_SIZE, "max-requests", NULL, "N", "requests in progress, those that wait included; further ones get status 503 (default " TEXT_OF(DEFAULT_REQUESTS) ")", SERVE_AT(max_requests), 1, 1 << 16, NULL, false},
    {OPT_SIZE, "max-connections", NULL, "N", "connections (default " TEXT_OF(DEFAULT_CONNECTIONS) ")", SERVE_AT(max_connections), 1, 1 << 16, NULL, false},
    {OPT_TOKENS, "max-tokens", NULL, "N", "tokens that a request may generate, even if it asks for more (default: as the context has room for)", SERVE_AT(max_tokens), 1, MANY, NULL, false},
    {OPT_TEXT, "max-body", NULL, "SIZE", "bytes of a request's body, as 512K or 8M (default " TEXT_OF(DEFAULT_BODY_MIB) "M)", SERVE_AT(max_body), 0, 0, NULL, false},
    {OPT_REAL, "time-limit", NULL, "SECONDS", "time of a request, which then ends with the tokens that it has (default: none)", SERVE_AT(time_limit), 0, 1e6, NULL, false},
    {OPT_REAL, "drain", NULL, "SECONDS", "after SIGTERM or SIGINT, time for requests in progress to end (default " TEXT_OF(DEFAULT_DRAIN) ")", SERVE_AT(drain), 0, 1e6, NULL, false},
    HEADING("Requests"),
    TOKENS_INT("predict", "n", request.n, -1, MANY, "tokens to generate, unless the request says how many; -1 runs until an EOS token, a stop string or a full context (default -1)"),
    FLAG("lenient", NULL, lenient, "ignore unknown members of requests"),
    TEXT("system", NULL, "TEXT", system, "system prompt of chats without one"),
    ROW_CHAT_TEMPLATE,
    ROW_TEMPLATE_KWARGS,
    FLAG("parse-special", NULL, parse_special, "parse special tokens in messages (default: plain text)"),
    FLAG("no-parse-special", NULL, no_parse_special, "treat special tokens such as </s> in prompts as plain text; requests can override it with parse_special"),
    GEN_OPTS_SAMPLING
    GEN_OPTS_CONSTRAINTS
    HEADING("Batching"),
    SIZE("parallel", "np", batch, 1, MOST_SEQUENCES, "sequences in a batch (default " TEXT_OF(JSONL_BATCH) ")"),
    ROW_MEMORY,
    ROWS_PRESSURE
    ROW_PREFIX_CACHE_MB,
    ROW_PREFIX_CACHE,
    ROW_NO_SPEC,
    FLAG("quiet", "q", quiet, "print neither a line per request nor statistics on standard error"),
    GEN_OPTS_MACHINE
    ROW_HEADS,
};
/* clang-format on */

static const char *const usage[] = {
    "[-m MODEL] [--port N | --socket PATH] [OPTION ...]",
    "[-m MODEL] --listen ADDRESS --api-key-file FILE [OPTION ...]",
    NULL,
};

static const struct program program = {
    "bmc-serve",
    "serve a language model to programs on this machine, by OpenAI's "
    "protocol",
    usage,
    opts,
    ARRAY_LEN(opts),
    NULL,
    NULL};

static const struct usage_rule rules[] = {
    {"socket", EXCLUDES, "listen port", NULL},
    {"kv-pressure", EXCLUDES, "kv-pressure-replay", NULL},
    {"kv-pressure-limit kv-pressure-log", NEEDS, "kv-pressure", NULL},
    {"listen", NEEDS, "api-key-file", "--listen needs --api-key-file: other machines reach the server"},
};

/* ---- keys and names ---- */

/* Reads the hashes of API keys, of which comparisons take the same time wherever keys differ. */
static int read_keys(struct server *server, const char *path, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    size_t cap = 0;
    if (cli_read_all(path, &text, err) < 0)
        return err_prefix(err, "--api-key-file");
    for (const char *at = buf_text(&text); *at;) {
        const size_t len = strcspn(at, "\r\n");
        if (len && mem_grow(&server->key, &cap, server->n_keys, sizeof *server->key, err) < 0)
            return -1;
        if (len)
            server->key[server->n_keys++] = hash_of(at, len);
        at += len + strspn(at + len, "\r\n");
    }
    sodium_memzero(text.data, text.len);
    return server->n_keys ? 0 : err_set(err, "--api-key-file %s: has no key", path);
}

/* The name of a model's file, without folder and ending. */
static void name_model(struct server *server)
{
    const char *path = server->gen->model->name, *slash = strrchr(path, '/');
    const char *name = server->options->alias ? server->options->alias
                       : slash && slash[1]    ? slash + 1
                                              : path;
    snprintf(server->model, sizeof server->model, "%s", name);
    char *dot = strrchr(server->model, '.');
    if (dot && !server->options->alias)
        *dot = 0;
}

/* ---- the run ---- */

/* Generates until the server ends. When a run has failed, the next requests get another, unless runs fail again and
 * again. An encoder generates nothing. */
static int generate_all(struct server *server, struct gen_stats *stats, struct err *err)
{
    enum { MOST_FAILURES = 3, WITHIN_MS = 60000 };
    struct lane *lane = &server->lane[GENERATION];
    const struct serve_io io = lane_io(lane);
    struct err no_head;
    double since_ms = 0;
    int rc = 0;
    for (int failures = 0; failures < MOST_FAILURES && lane_wait(lane) &&
                           !__atomic_load_n(&server->stop, __ATOMIC_RELAXED);) {
        if (server->gen->embeds_only) {
            err_set(&no_head, "the model %s has no LM head: it answers /v1/embeddings%s only",
                    server->model, *server->no_reranker.text ? "" : " and /v1/rerank");
            lane_refuse(lane, OPENAI_BAD_REQUEST, &no_head);
            continue;
        }
        rc = serve_lines(&server->gen->serve, &io, stats, err);
        if (rc == 0)
            continue;
        cli_fail(program.name, err);
        lane_abandon(lane, err);
        failures = clock_ms() - since_ms < WITHIN_MS ? failures + 1 : 1;
        since_ms = failures == 1 ? clock_ms() : since_ms;
    }
    server_close_lanes(server);
    lane_end(lane);
    return rc;
}

static void ignore_progress(void *arg) { (void)arg; }

/* Embeds or reranks texts until there are no more; a session that fails is closed. */
static int serve_texts(struct lane *lane, struct session *session, struct err *err)
{
    struct server *server = lane->server;
    const struct serve_io io = lane_io(lane);
    const struct model *model = server->gen->model;
    struct embed_stats stats = {0};
    struct text_lines job = {.session = session,
                             .serve = &server->gen->serve,
                             .io = &io,
                             .interrupted = &server->stop,
                             .parse_special = server->gen->serve.options.parse_special,
                             .lenient = server->gen->serve.options.lenient,
                             .progress = ignore_progress,
                             .normalize = model->config.pooled.normalize};
    if (lane == &server->lane[RERANKING]) {
        job.reranker = &server->reranker;
        return text_lines_rerank(&job, &stats, err);
    }
    AUTO(buf_release) struct buf prompt = {0};
    if (embed_declared(model, &job.pooling, err) < 0 || embed_prompt(model, NULL, &prompt, err) < 0)
        return err_prefix(err, "the model %s", server->model);
    job.prompt = (struct slice){prompt.data, prompt.len};
    return text_lines_embed(&job, &stats, err);
}

/* Opens a session for texts: as many at a time, and as long ones, as its part of --memory has room for. */
static int open_texts(const struct server *server, struct session **session, struct err *err)
{
    const struct session *other = server->gen->session;
    const size_t bytes = (server->options->text_bytes +
                          (server->gen->embeds_only ? server->options->gen.memory_bytes : 0)) /
                         (*server->no_reranker.text ? 1 : 2);
    struct session_options options = *session_options(other);
    size_t fit = SIZE_MAX;
    options.prefix_cache_bytes = options.kept_states = options.memory_bytes = 0;
    options.prefix_store = NULL;
    options.pressure = NULL;
    for (size_t n = options.context; bytes && n; n -= div_up(n, 16)) {
        options.context = n;
        fit = kv_footprint_fits(session_kv(other), kv_footprint(session_kv(other), n, n, 1), bytes);
        if (fit)
            break;
    }
    if (!fit)
        return err_set(
            err, "--memory leaves %zu bytes for such requests, which is too little: raise it", bytes);
    options.batch = size_min(options.batch, fit);
    options.chunk = size_min(options.chunk, options.context);
    return session_open(session, server->gen->model, &options, err);
}

/* The thread of embeddings, or of reranking: it has a session of its own, opened by the first request. */
static void *run_texts(void *arg)
{
    struct lane *lane = arg;
    struct server *server = lane->server;
    const bool reranks = lane == &server->lane[RERANKING];
    struct session *session = NULL;
    bool warned = !reranks || *server->no_reranker.text;
    struct err err;
    while (lane_wait(lane) && !__atomic_load_n(&server->stop, __ATOMIC_RELAXED)) {
        if (!warned)
            gen_warn_of_reranker(server->gen, &server->reranker);
        warned = true;
        if (server->gen->model->store) { /* whose experts are those of one pass at a time */
            err_set(&err, "with --experts there are no embeddings and no reranking");
            lane_refuse(lane, OPENAI_BAD_REQUEST, &err);
        } else if (reranks && *server->no_reranker.text) {
            lane_refuse(lane, OPENAI_BAD_REQUEST, &server->no_reranker);
        } else if ((!session && open_texts(server, &session, &err) < 0) ||
                   serve_texts(lane, session, &err) < 0) {
            cli_fail(program.name, &err);
            lane_abandon(lane, &err);
            lane_refuse(lane, OPENAI_SERVER_ERROR, &err);
            session_close(session);
            session = NULL;
        }
    }
    lane_end(lane);
    session_close(session);
    return NULL;
}

static int run_server(struct server *server, struct err *err)
{
    struct gen *gen = server->gen;
    struct gen_stats stats = {0};
    pthread_t thread, texts[LANES];
    size_t n = EMBEDDING;
    if (http_start(server, &thread, err) < 0)
        return -1;
    while (n < LANES && thread_start(&texts[n], run_texts, &server->lane[n]) == 0)
        n++;
    const bool started = n == LANES;
    if (!started)
        server_close_lanes(server);
    else
        notify_systemd("READY=1");
    if (started && !gen->options->quiet)
        cli_say(stderr, "%s: %s at %s\n", program.name, server->model, server->listener.name);
    const int rc = started ? generate_all(server, &stats, err)
                           : err_set(err, "cannot start threads for embeddings and reranking");
    while (n > EMBEDDING)
        pthread_join(texts[--n], NULL);
    http_end(server, thread);
    return rc < 0 ? -1 : gen_report(gen, &stats, err);
}

/* Opens the session that generates; of an encoder only its options are of use. */
static int open_session(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t by_memory = o->memory_bytes ? GEN_AS_FIT : JSONL_BATCH;
    gen->embeds_only = gen->model->config.no_head;
    if (gen_open_session(gen, o->batch ? o->batch : by_memory, gen->model->config.context, err) < 0)
        return -1;
    const struct kv *kv = session_kv(gen->session);
    const struct kv_footprint least = kv_footprint(kv, 1, 1, 1);
    return !o->memory_bytes || kv_footprint_fits(kv, least, o->memory_bytes)
               ? 0
               : err_set(
                     err,
                     "--memory %s leaves %zu bytes for requests, and the KV cache of one has at least "
                     "%zu: raise it",
                     o->memory, o->memory_bytes, kv_footprint_peak(kv, least));
}

static int serve_clients(struct gen *gen, struct err *err)
{
    const struct serve_cli *o = (const struct serve_cli *)gen->options;
    struct server server = {.options = o, .gen = gen, .listener = {.fd = -1}};
    struct serve *serve = &gen->serve;
    uint64_t process;
    if (gen->ranks)
        return err_set(err, "bmc-serve is for a single process: leave mpirun out");
    server.most_body =
        o->max_body ? opt_bytes(&program, "--max-body", o->max_body) : (size_t)DEFAULT_BODY_MIB << 20;
    if (o->api_key_file && read_keys(&server, o->api_key_file, err) < 0)
        return -1;
    if (listener_open(&server.listener, o, err) < 0 || seed_draw(&process, err) < 0 ||
        open_session(gen, err) < 0)
        return -1;
    snprintf(server.process, sizeof server.process, "%08llx-",
             (unsigned long long)process & 0xffffffff);
    name_model(&server);
    if (reranker_init(&server.reranker, gen->model, &server.no_reranker) < 0)
        err_prefix(&server.no_reranker, "the model %s", server.model);
    serve->name = server.model;
    serve->options.openai = serve->options.service = true;
    serve->options.most_tokens = o->max_tokens ? o->max_tokens : GENERATE_NO_LIMIT;
    serve->interrupted = &server.stop;
    serve->cached = mem_zalloc(session_options(gen->session)->batch, sizeof *serve->cached);
    pthread_mutex_init(&server.lock, NULL);
    for (size_t i = 0; i < ARRAY_LEN(server.lane); i++)
        lane_open(&server.lane[i], &server);
    const int rc = serve->cached ? run_server(&server, err) : err_no_memory(err, "the server");
    for (size_t i = 0; i < ARRAY_LEN(server.lane); i++)
        lane_close(&server.lane[i]);
    pthread_mutex_destroy(&server.lock);
    listener_close(&server.listener);
    for (size_t i = 0; serve->cached && i < session_options(gen->session)->batch; i++)
        ids_release(&serve->cached[i]);
    free(serve->cached);
    free(server.key);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct usage_condition no_condition = {NULL, false};
    struct serve_cli o = {.gen = gen_defaults(),
                          .port = DEFAULT_PORT,
                          .max_requests = DEFAULT_REQUESTS,
                          .max_connections = DEFAULT_CONNECTIONS,
                          .drain = DEFAULT_DRAIN};
    struct operands operands;
    gen_begin(&program, argc, argv, &o, &operands);
    signal(SIGPIPE, SIG_IGN); /* of clients that have gone */
    o.gen.jsonl = true;       /* defaults are those of bmc-gen --jsonl */
    usage_check(&(struct usage){&program, &o, &operands, &no_condition}, rules, ARRAY_LEN(rules));
    gen_check_usage(&program, &o.gen, &operands);
    gen_finish_options(&program, &o.gen);
    o.gen.memory_bytes = gen_memory(&program, &o.gen);
    o.text_bytes = o.gen.memory_bytes / TEXT_PART;
    o.gen.memory_bytes -= o.text_bytes;
    struct gen gen = {.program = &program, .options = &o.gen};
    return gen_main(&gen, &o.gen, serve_clients);
}
