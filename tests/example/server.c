/* A batch server: clients connect to a UNIX socket, write requests, lines of JSON as of
 * bmc-gen --jsonl, and get a line of JSON for each, in their order. Requests that arrive while others
 * are computed form the next batch.
 *
 *   cc server.c $(pkg-config --cflags --libs bmc) -ljansson -o server
 *   ./server MODEL.bmc SOCKET [SEQUENCES]
 *   echo '{"prompt": "Once upon a time", "n": 12}' | nc -NU SOCKET */
#include <bmc.h>
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS = 64, LINE = 1 << 20 };

/* A client: its socket, -1 if the place is free, and the bytes that it has sent. */
struct client {
    int fd;
    char *line; /* [LINE] */
    size_t len;
    int ended; /* it sends no more */
};

static struct client client[CLIENTS];
static volatile int stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void hang_up(struct client *c)
{
    close(c->fd);
    free(c->line);
    *c = (struct client){.fd = -1};
}

static void write_line(struct client *c, json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_PRESERVE_ORDER);
    const size_t len = text ? strlen(text) : 0;
    if (text)
        text[len] = '\n';
    for (size_t at = 0; text && at < len + 1;) {
        const ssize_t n = write(c->fd, text + at, len + 1 - at);
        if (n < 0)
            break; /* it has gone: recv() says so, too */
        at += (size_t)n;
    }
    free(text);
    json_decref(answer);
}

/* Takes the client's next complete line, zero-terminated; NULL: there is none. */
static char *take_line(struct client *c)
{
    char *end = c->len ? memchr(c->line, '\n', c->len) : NULL;
    if (!end)
        return NULL;
    *end = 0;
    char *line = strdup(c->line);
    c->len -= (size_t)(end + 1 - c->line);
    memmove(c->line, end + 1, c->len);
    return line;
}

static void receive(struct client *c)
{
    const ssize_t n = recv(c->fd, c->line + c->len, LINE - c->len, 0);
    c->ended = n <= 0; /* also a line that is too long */
    c->len += n > 0 ? (size_t)n : 0;
}

static void accept_client(int listener)
{
    for (struct client *c = client; c < client + CLIENTS; c++)
        if (c->fd < 0) {
            *c = (struct client){.fd = accept(listener, NULL, NULL), .line = malloc(LINE)};
            if (c->fd < 0 || !c->line)
                hang_up(c);
            return;
        }
}

/* Computes one request of each client that has sent one, together. */
static int serve_batch(struct bmc_context *context)
{
    const struct bmc_callbacks callbacks = {.size = sizeof callbacks, .cancelled = &stop};
    struct bmc_request request[CLIENTS];
    struct bmc_result result[CLIENTS];
    struct client *of[CLIENTS];
    char *line[CLIENTS];
    struct bmc_error error;
    size_t n = 0;
    for (struct client *c = client; c < client + CLIENTS; c++)
        if (c->fd >= 0 && (line[n] = take_line(c))) {
            request[n] = (struct bmc_request){.size = sizeof *request, .settings = line[n]};
            result[n] = (struct bmc_result){.size = sizeof *result};
            of[n++] = c;
        }
    /* Settings that are no object refuse the whole call: then each request is computed by itself. */
    const int whole = bmc_generate(context, request, result, n, &callbacks, &error);
    for (size_t i = 0; i < n; i++) {
        if (whole == BMC_INVALID && !result[i].status && !result[i].text)
            result[i].status = bmc_generate(context, &request[i], &result[i], 1, &callbacks, &error);
        else if (result[i].status)
            error = result[i].error;
        write_line(of[i], result[i].status
                              ? json_pack("{s:s}", "error", error.text)
                              : json_pack("{s:s%, s:I}", "text", result[i].text, result[i].text_len,
                                          "tokens", (json_int_t)result[i].n_ids));
        bmc_result_release(&result[i]);
        free(line[i]);
    }
    return n > 0;
}

/* Waits for input, unless lines are left to compute. */
static void wait_for_input(int listener)
{
    struct pollfd on[CLIENTS + 1] = {{.fd = listener, .events = POLLIN}};
    for (size_t i = 0; i < CLIENTS; i++)
        on[i + 1] = (struct pollfd){.fd = client[i].ended ? -1 : client[i].fd, .events = POLLIN};
    if (poll(on, CLIENTS + 1, -1) <= 0)
        return; /* a signal */
    for (size_t i = 0; i < CLIENTS; i++)
        if (on[i + 1].revents)
            receive(&client[i]);
    for (struct client *c = client; c < client + CLIENTS; c++)
        if (c->fd >= 0 && c->ended && (!c->len || !memchr(c->line, '\n', c->len)))
            hang_up(c);
    if (on[0].revents)
        accept_client(listener);
}

static int open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (strlen(path) >= sizeof address.sun_path)
        return errno = ENAMETOOLONG, -1;
    memcpy(address.sun_path, path, strlen(path));
    return bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, CLIENTS) == 0 ? fd
                                                                                                  : -1;
}

int main(int argc, char **argv)
{
    struct bmc_model *model = NULL;
    struct bmc_context *context = NULL;
    struct bmc_error error;
    if (argc < 3 || argc > 4)
        return fprintf(stderr, "usage: server MODEL.bmc SOCKET [SEQUENCES]\n"), 2;
    const struct bmc_options options = {.size = sizeof options,
                                        .sequences = argc == 4 ? strtoul(argv[3], NULL, 10) : 8};
    for (struct client *c = client; c < client + CLIENTS; c++)
        c->fd = -1;
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    if (bmc_model_open(&model, argv[1], &error) < 0 ||
        bmc_context_open(&context, model, &options, &error) < 0)
        return fprintf(stderr, "server: %s\n", error.text), 1;
    const int listener = open_socket(argv[2]);
    if (listener < 0)
        return fprintf(stderr, "server: %s: %s\n", argv[2], strerror(errno)), 1;
    while (!stop)
        if (!serve_batch(context))
            wait_for_input(listener);
    unlink(argv[2]);
    bmc_context_close(context);
    bmc_model_close(model);
}
