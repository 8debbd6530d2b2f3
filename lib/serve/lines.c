/* Lines in, and results out in the order of their lines. */
#include "serve/lines.h"

#include "decode/generate.h"

void lines_release(struct lines *lines) { buf_release(&lines->input); }

/* Skips a UTF-8 byte order mark before the first line. */
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

/* Takes a complete line from the buffer; at the end of the input also a last line without line end.
 * The first `seen` bytes are known to contain no line end. */
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
    const ssize_t n = lines->source.read(lines->source.fd, input->data + input->len, BLOCK);
    if (n < 0)
        return err_errno(err, "cannot read the input");
    lines->ended = n == 0;
    input->len += (size_t)n;
    return 0;
}

/* Skips the rest of a line that is too long. False: its end has not arrived yet. */
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

/* Reports the line at the start of the buffer as too long (*line = NULL), and begins to skip it. */
static int refuse_line(struct lines *lines, const char **line, size_t *len)
{
    *line = NULL;
    *len = 0;
    lines->done_bytes += lines->input.len - lines->taken;
    lines->skipping = true;
    lines->number += lines->any;
    lines->any = true;
    lines->taken = 0;
    buf_release(&lines->input);
    return GEN_REQUEST;
}

static bool is_blank(const char *line, size_t len, bool json)
{
    while (json && len && memchr(" \t\r", line[len - 1], 3))
        len--;
    return len == 0;
}

/* Takes the next complete line that is not blank from the buffer, and counts those up to it. */
static bool take_next(struct lines *lines, size_t seen, const char **line, size_t *len)
{
    while (take_line(lines, seen, line, len)) {
        lines->number += lines->any;
        lines->any = true;
        if (!is_blank(*line, *len, lines->json))
            return true;
        seen = 0;
    }
    return false;
}

int lines_next(struct lines *lines, bool wait, const char **line, size_t *len, struct err *err)
{
    size_t seen = 0;
    for (;;) {
        if ((!lines->skipping || skip_rest(lines)) && take_next(lines, seen, line, len))
            return GEN_REQUEST;
        seen = lines->input.len - lines->taken;
        if (seen > LINE_BYTES)
            return refuse_line(lines, line, len);
        if (lines->ended)
            return GEN_END;
        if (!wait && !lines->source.readable(lines->source.fd))
            return GEN_LATER;
        if (read_more(lines, err) < 0)
            return -1;
        if (*lines->source.interrupted)
            return GEN_END; /* an interrupted line is incomplete, so it is not a request */
    }
}

int lines_failed(uint64_t failed, uint64_t all, const char *what, struct err *err)
{
    return failed ? err_set(err, "%llu of %llu %s failed: their results say why",
                            (unsigned long long)failed, (unsigned long long)all, what)
                  : 0;
}

int lines_check(const char *line, struct err *err)
{
    return line ? 0 : err_set(err, "is longer than %d MiB, the limit of a line", LINE_BYTES >> 20);
}

/* ---- results ---- */

json_t *line_error(uint64_t number, const struct err *why)
{
    char text[sizeof why->text + 32];
    if (why->code == ERR_INTERRUPTED)
        return json_text(why->text, strlen(why->text));
    const int len =
        snprintf(text, sizeof text, "line %llu: %s", (unsigned long long)number + 1, why->text);
    return json_text(text, size_min((size_t)len, sizeof text - 1));
}

struct pending_result {
    struct buf text;
    uint64_t line;
    bool ready;
};

/* Writes all results up to the first input line without one; with `rest`, also those after it. */
static int put_ready(struct results *results, bool rest, struct err *err)
{
    size_t n = 0;
    int rc = 0;
    while (n < results->n && (results->pending[n].ready || rest) && rc == 0) {
        if (results->pending[n].text.len)
            rc = results->write(&results->pending[n].text, err);
        buf_release(&results->pending[n++].text);
    }
    results->n -= n;
    if (n)
        memmove(results->pending, results->pending + n, results->n * sizeof *results->pending);
    return rc;
}

int results_expect(struct results *results, uint64_t line, struct err *err)
{
    if (results->unordered)
        return 0;
    if (mem_grow(&results->pending, &results->cap, results->n, sizeof *results->pending, err) < 0)
        return -1;
    results->pending[results->n++] = (struct pending_result){.line = line};
    return 0;
}

int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err)
{
    size_t at = 0, end = results->n;
    while (at + 1 < end) {
        const size_t mid = (at + end) / 2;
        if (results->pending[mid].line <= line)
            at = mid;
        else
            end = mid;
    }
    if (!results->unordered) {
        results->pending[at] = (struct pending_result){*text, line, true};
        return put_ready(results, false, err);
    }
    const int rc = results->write(text, err);
    buf_release(text);
    return rc;
}

int results_end(struct results *results, struct err *err) { return put_ready(results, true, err); }

void results_release(struct results *results)
{
    for (size_t i = 0; i < results->n; i++)
        buf_release(&results->pending[i].text);
    free(results->pending);
    *results = (struct results){0};
}
