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

int lines_next(struct lines *lines, bool wait, const char **line, size_t *len, struct err *err)
{
    size_t seen = 0;
    for (;;) {
        if (take_line(lines, seen, line, len))
            return GEN_REQUEST;
        if (lines->ended)
            return GEN_END;
        if (!wait && !cli_readable(lines->fd))
            return GEN_LATER;
        seen = lines->input.len - lines->taken;
        if (read_more(lines, err) < 0)
            return -1;
        if (cli_interrupted)
            return GEN_END; /* half a line is no request */
    }
}
