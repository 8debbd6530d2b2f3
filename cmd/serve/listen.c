/* Where the server listens: 127.0.0.1, a UNIX socket, another address, or a socket of systemd; notes to systemd. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/server.h"

enum { FIRST_FD = 3, BACKLOG = 511 };

/* The socket that systemd has passed; -1: none, as the process is not the one that it was for. */
static int passed_socket(struct err *err)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || strtol(pid, NULL, 10) != getpid())
        return -1;
    const long n = strtol(fds, NULL, 10);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    if (n != 1) {
        err_set(err, "systemd passes %ld sockets: one is expected", n);
        return -2;
    }
    (void)!fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
    return FIRST_FD;
}

/* Finds out who can reach a socket that is open already. */
static int describe(struct listener *l, struct err *err)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[64], port[16];
    if (getsockname(l->fd, (struct sockaddr *)&at, &len) < 0)
        return err_errno(err, "what systemd passes is no socket");
    l->unix_socket = at.ss_family == AF_UNIX;
    if (l->unix_socket) {
        l->local = true;
        snprintf(l->name, sizeof l->name, "a UNIX socket");
        return 0;
    }
    if (getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return err_set(err, "the socket's address cannot be read");
    const struct sockaddr_in *v4 = (const void *)&at;
    const struct sockaddr_in6 *v6 = (const void *)&at;
    l->local = at.ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                       : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    snprintf(l->name, sizeof l->name, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
             port);
    return 0;
}

static int listen_at(struct listener *l, const struct sockaddr *at, socklen_t len, struct err *err)
{
    l->fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return err_errno(err, "cannot open a socket");
    (void)!setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    return bind(l->fd, at, len) < 0 || listen(l->fd, BACKLOG) < 0 ? err_errno(err, "cannot listen") : 0;
}

static int listen_unix(struct listener *l, const char *path, struct err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return err_set(err, "--socket %s: a path of a UNIX socket has at most %zu characters", path,
                       sizeof at.sun_path - 1);
    strcpy(at.sun_path, path);
    /* One that nobody listens at is left from a server that was killed. */
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat known;
    if (probe >= 0 && lstat(path, &known) == 0 && S_ISSOCK(known.st_mode) &&
        connect(probe, (struct sockaddr *)&at, sizeof at) < 0 && errno == ECONNREFUSED)
        unlink(path);
    if (probe >= 0)
        close(probe);
    if (listen_at(l, (struct sockaddr *)&at, sizeof at, err) < 0)
        return err_prefix(err, "--socket %s", path);
    snprintf(l->path, sizeof l->path, "%s", path);
    return 0;
}

static int listen_tcp(struct listener *l, const char *host, size_t port, struct err *err)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    char service[16];
    snprintf(service, sizeof service, "%zu", port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return err_set(err, "--listen %s: an IP address is expected, as 0.0.0.0 or ::", host);
    const int rc = listen_at(l, found->ai_addr, found->ai_addrlen, err);
    freeaddrinfo(found);
    return rc < 0 ? err_prefix(err, "%s port %zu (--port)", host, port) : 0;
}

int listener_open(struct listener *l, const struct serve_cli *o, struct err *err)
{
    *l = (struct listener){.fd = passed_socket(err)};
    if (l->fd < -1)
        return -1;
    const int rc = l->fd >= 0  ? 0
                   : o->socket ? listen_unix(l, o->socket, err)
                               : listen_tcp(l, o->listen ? o->listen : "127.0.0.1", o->port, err);
    if (rc < 0 || describe(l, err) < 0)
        return -1;
    if (o->socket)
        snprintf(l->name, sizeof l->name, "%.120s", o->socket);
    return l->local || o->api_key_file
               ? 0
               : err_set(err, "%s can be reached from other machines: give --api-key-file", l->name);
}

void listener_close(struct listener *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (*l->path)
        unlink(l->path);
}

void notify_systemd(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@')
        to.sun_path[0] = 0; /* an abstract one */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, len);
    close(fd);
}
