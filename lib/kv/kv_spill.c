/* A file without a name, and the pieces of it that are under way. */
#include "kv/kv_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/spill_engine.h"

enum {
    PIECE_BYTES = 1 << 20,        /* of a read or write, unless it would be too many pieces */
    PIECES_OF_ONE = 64,           /* a read or write is cut into so many at most */
    COMMON_BYTES_PER_MS = 1000000 /* 1 GB a second */
};

struct spill {
    int fd;
    char *dir;
    const struct spill_engine *engine;
    void *state; /* the engine's */
    struct spill_piece piece[SPILL_PIECES];
    struct spill_piece *spare;
    size_t under_way;
    double pace; /* bytes per ms; 0: nothing was read */
};

/* ---- the file ---- */

/* Where file systems know no files without a name: one that loses its name at once. */
static int open_named(const char *dir)
{
    char path[SPILL_DIR_SIZE + 64];
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "%s/.bmc-%ld-%llx", dir, (long)getpid(),
                 (unsigned long long)(clock_ms() * 1e6));
        const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 && unlink(path) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        if (errno != EEXIST)
            break;
    }
    return -1;
}

static int open_file(const char *dir)
{
    const int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) ? fd
                                                                                  : open_named(dir);
}

static bool write_block(int fd, void *block)
{
    const ssize_t n = pwrite(fd, block, SPILL_BLOCK, 0);
    if (n >= 0 && n < SPILL_BLOCK)
        errno = ENOSPC;
    return n == SPILL_BLOCK && pread(fd, block, SPILL_BLOCK, 0) == SPILL_BLOCK;
}

/* A first block there and back: past the page cache, or else through it. */
static bool try_file(int fd)
{
    void *block = aligned_alloc(SPILL_BLOCK, SPILL_BLOCK);
    if (!block)
        return false;
    memset(block, 0, SPILL_BLOCK);
    const bool direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    bool ok = direct && write_block(fd, block);
    if (!ok && (!direct || errno == EINVAL))
        ok = fcntl(fd, F_SETFL, 0) == 0 && write_block(fd, block);
    free(block);
    return ok;
}

static bool open_engine(struct spill *spill)
{
    static const struct spill_engine *const engines[] = {&spill_engine_uring, &spill_engine_thread};
    for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
        spill->engine = engines[i];
        if (spill->engine->open(&spill->state, spill->fd))
            return true;
    }
    spill->engine = NULL;
    return false;
}

int spill_open(struct spill **out, const char *dir, struct err *err)
{
    struct spill *spill = *out = mem_zalloc(1, sizeof *spill);
    int rc = -1;
    if (spill)
        spill->fd = -1;
    if (!spill || !(spill->dir = strdup(dir)))
        rc = err_set(err, "out of memory");
    else if ((spill->fd = open_file(dir)) < 0)
        rc = err_errno(
            err, "%s: cannot make a file for the cache there; name another folder with dir=", dir);
    else if (!try_file(spill->fd))
        rc = err_errno(err, "%s: cannot write a file for the cache there", dir);
    else if (!open_engine(spill))
        rc =
            err_set(err, "neither io_uring nor a thread can be had to read and write the cache's file");
    else
        rc = 0;
    for (size_t i = 0; rc == 0 && i < SPILL_PIECES; i++) {
        spill->piece[i].next = spill->spare;
        spill->spare = &spill->piece[i];
    }
    if (rc < 0) {
        spill_close(spill);
        *out = NULL;
    }
    return rc;
}

/* ---- pieces ---- */

/* One piece that has ended goes back; what it lacks is read or written now, or told. */
static void collect(struct spill *spill)
{
    struct spill_piece *piece = spill->engine->ended(spill->state);
    struct spill_ticket *ticket = piece->ticket;
    ssize_t n = piece->result;
    const bool again = n == -EINTR || n == -EAGAIN;
    if (again || (n >= 0 && (size_t)n < piece->bytes))
        n = spill_piece_run(spill->fd, piece, again ? 0 : (size_t)n / SPILL_BLOCK * SPILL_BLOCK);
    if ((n < 0 || (size_t)n < piece->bytes) && !ticket->error) {
        ticket->error = n < 0 ? (int)-n : EIO;
        ticket->ended = n >= 0;
        ticket->wrote = piece->write;
    }
    ticket->pending--;
    spill->under_way--;
    piece->next = spill->spare;
    spill->spare = piece;
}

static struct spill_piece *spare_piece(struct spill *spill)
{
    if (!spill->spare) {
        spill->engine->begin(spill->state);
        collect(spill);
    }
    struct spill_piece *piece = spill->spare;
    spill->spare = piece->next;
    return piece;
}

static void start(struct spill *spill, struct spill_ticket *ticket, bool write, char *at, size_t offset,
                  size_t bytes)
{
    const size_t most = size_max(PIECE_BYTES, round_up(div_up(bytes, PIECES_OF_ONE), SPILL_BLOCK));
    if (!ticket->bytes)
        ticket->since_ms = clock_ms();
    ticket->bytes += bytes;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = size_min(most, bytes - done);
        struct spill_piece *piece = spare_piece(spill);
        *piece = (struct spill_piece){
            .ticket = ticket, .at = at + done, .offset = offset + done, .bytes = n, .write = write};
        ticket->pending++;
        spill->under_way++;
        spill->engine->take(spill->state, piece);
    }
    spill->engine->begin(spill->state);
}

void spill_read(struct spill *spill, struct spill_ticket *ticket, void *at, size_t offset, size_t bytes)
{
    start(spill, ticket, false, at, offset, bytes);
}

void spill_write(struct spill *spill, struct spill_ticket *ticket, const void *at, size_t offset,
                 size_t bytes)
{
    ticket->wrote = true;
    start(spill, ticket, true, (char *)(uintptr_t)at, offset, bytes);
}

static int say(const struct spill *spill, const struct spill_ticket *ticket, struct err *err)
{
    if (ticket->ended)
        return err_set(err, "%s: the cache's file there %s", spill->dir,
                       ticket->wrote ? "takes no more: the disk is full"
                                     : "is shorter than what was written to it");
    errno = ticket->error;
    return err_errno(err, "%s: cannot %s the cache's file there", spill->dir,
                     ticket->wrote ? "write to" : "read from");
}

int spill_wait(struct spill *spill, struct spill_ticket *ticket, struct err *err)
{
    while (ticket->pending)
        collect(spill);
    const double ms = clock_ms() - ticket->since_ms;
    if (ticket->bytes && !ticket->wrote && ms > 0 && (double)ticket->bytes / ms > spill->pace)
        spill->pace = (double)ticket->bytes / ms;
    const int rc = ticket->error ? say(spill, ticket, err) : 0;
    *ticket = (struct spill_ticket){0};
    return rc;
}

double spill_pace(const struct spill *spill)
{
    return spill->pace > 0 ? spill->pace : COMMON_BYTES_PER_MS;
}

void spill_close(struct spill *spill)
{
    if (!spill)
        return;
    while (spill->under_way)
        collect(spill);
    if (spill->engine)
        spill->engine->close(spill->state);
    if (spill->fd >= 0)
        close(spill->fd);
    free(spill->dir);
    free(spill);
}
