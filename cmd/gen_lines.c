/* The lines of an input, as they come. */
#include "gen_lines.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "decode/generate.h"

int lines_open(struct lines *lines, const char *path, struct err *err)
{
    struct stat st;
    *lines = (struct lines){.fd = STDIN_FILENO};
    if (path && strcmp(path, "-") != 0 && (lines->fd = cli_open(path)) < 0)
        return err_errno(err, "%s: cannot open", path);
    if (fstat(lines->fd, &st) == 0 && S_ISREG(st.st_mode))
        lines->total_bytes = (size_t)st.st_size;
    return 0;
}

void lines_close(struct lines *lines)
{
    buf_release(&lines->input);
    if (lines->fd > STDIN_FILENO)
        close(lines->fd);
    *lines = (struct lines){.fd = STDIN_FILENO};
}

/* A byte order mark, which some programs put before the first line, is none of its bytes. */
static void skip_mark(struct lines *lines, const char **line, size_t *len)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t n = sizeof mark - 1;
    if (lines->done_bytes || *len < n || memcmp(*line, mark, n) != 0)
        return;
    *line += n;
    *len -= n;
    lines->done_bytes += n;
}

/* Of the bytes that are there, a whole line, or the last one that has no end. `seen` bytes hold no line end. */
static bool take_line(struct lines *lines, size_t seen, const char **line, size_t *len)
{
    const char *at = lines->input.data + lines->taken;
    const size_t left = lines->input.len - lines->taken;
    const char *end = left > seen ? memchr(at + seen, '\n', left - seen) : NULL;
    if (!end && !(lines->ended && left))
        return false;
    *line = at;
    *len = end ? (size_t)(end - at) : left;
    lines->taken += *len + (end != NULL);
    skip_mark(lines, line, len);
    lines->done_bytes += *len + (end != NULL);
    return true;
}

/* More bytes behind those that are left. */
static int read_more(struct lines *lines, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    struct buf *input = &lines->input;
    if (lines->taken) {
        input->len -= lines->taken;
        memmove(input->data, input->data + lines->taken, input->len);
        lines->taken = 0;
    }
    if (buf_reserve(input, BLOCK, err) < 0)
        return -1;
    const ssize_t n = cli_read(lines->fd, input->data + input->len, BLOCK);
    if (n < 0)
        return err_errno(err, "cannot read lines");
    lines->ended = n == 0;
    input->len += (size_t)n;
    return 0;
}

/* What is left of a line that was too long; false: its end is not there yet. */
static bool skip_rest(struct lines *lines)
{
    const size_t left = lines->input.len - lines->taken;
    const char *at = left ? lines->input.data + lines->taken : NULL,
               *end = left ? memchr(at, '\n', left) : NULL;
    const size_t len = end ? (size_t)(end - at) + 1 : left;
    lines->taken += len;
    lines->done_bytes += len;
    lines->skipping = !end;
    return end != NULL;
}

/* The line that the buffer holds a part of has no end within bounds. */
static int refuse_line(struct lines *lines, const char **line, size_t *len)
{
    *line = NULL;
    *len = 0;
    lines->done_bytes += lines->input.len - lines->taken;
    lines->skipping = true;
    lines->taken = 0;
    buf_release(&lines->input);
    return GEN_REQUEST;
}

int lines_next(struct lines *lines, bool wait, const char **line, size_t *len, struct err *err)
{
    size_t seen = 0;
    for (;;) {
        if ((!lines->skipping || skip_rest(lines)) && take_line(lines, seen, line, len))
            return GEN_REQUEST;
        seen = lines->input.len - lines->taken;
        if (seen > LINE_BYTES)
            return refuse_line(lines, line, len);
        if (lines->ended)
            return GEN_END;
        if (!wait && !cli_readable(lines->fd))
            return GEN_LATER;
        if (read_more(lines, err) < 0)
            return -1;
        if (cli_interrupted)
            return GEN_END; /* half a line is no request */
    }
}

int lines_verdict(uint64_t failed, uint64_t all, const char *what, struct err *err)
{
    if (!failed || cli_interrupted)
        return 0;
    return err_set(err, "%llu of %llu %s failed: their results say why", (unsigned long long)failed,
                   (unsigned long long)all, what);
}

int lines_check(const char *line, struct err *err)
{
    return line ? 0
                : err_set(err, "is longer than %d MiB, which is the most that a line may have",
                          LINE_BYTES >> 20);
}
