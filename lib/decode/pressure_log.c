/* Writes and reads the log of memory pressure. */
#include "decode/pressure_log.h"

#include "base/mem.h"
#include "base/number.h"
#include "format/detect.h"

/* Reads one line: a conversion is noted, other events need no repetition. */
static int read_line(struct pressure_log *log, char *line, const char *path, size_t number,
                     struct err *err)
{
    char *field[5], *rest = line;
    size_t n = 0;
    for (char *word; n < ARRAY_LEN(field) && (word = strsep(&rest, " "));)
        field[n++] = word;
    struct pressure_event event = {0};
    const bool numbered =
        n >= 3 && parse_size(field[1], &event.sequence) && parse_size(field[2], &event.position);
    if (numbered && n == 3 && strcmp(field[0], "suspend") == 0)
        return 0;
    if (!numbered || n != 4 || !event.position || strcmp(field[0], "convert") != 0 ||
        strcmp(field[3], PRESSURE_TYPE) != 0)
        return err_set(
            err,
            "%s: line %zu, \"%.40s ..\", is none of a log of --kv-pressure: \"convert SEQUENCE "
            "POSITION " PRESSURE_TYPE "\" is expected",
            path, number, line);
    if (mem_grow(&log->event, &log->events_cap, log->n_events, sizeof *log->event, err) < 0)
        return -1;
    log->event[log->n_events++] = event;
    return 0;
}

static int read_log(struct pressure_log *log, const char *path, struct err *err)
{
    struct file_map map;
    AUTO(buf_release) struct buf text = {0};
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = buf_add(&text, map.data, map.size, err);
    file_unmap(&map);
    if (rc == 0 && text.len && memchr(text.data, 0, text.len))
        rc = err_set(err, "%s: is no log of --kv-pressure, which is text", path);
    char *rest = text.len ? text.data : NULL;
    for (size_t number = 1; rc == 0 && rest; number++) {
        char *line = strsep(&rest, "\n");
        rc = *line && *line != '#' ? read_line(log, line, path, number, err) : 0;
    }
    return rc;
}

int pressure_log_open(struct pressure_log *log, const char *path, const char *replay, struct err *err)
{
    *log = (struct pressure_log){.out.fd = -1};
    if (replay && read_log(log, replay, err) < 0)
        return -1;
    static const char begin[] = PRESSURE_BEGIN ", by the numbers of sequences and the tokens before\n";
    if (!path)
        return 0;
    return outfile_open(&log->out, path, err) < 0 ? -1
                                                  : outfile_write(&log->out, begin, strlen(begin), err);
}

int pressure_log_commit(struct pressure_log *log, struct err *err)
{
    return log->out.fd < 0 ? 0 : outfile_commit(&log->out, err);
}

void pressure_log_close(struct pressure_log *log)
{
    if (log->out.fd >= 0)
        outfile_abort(&log->out);
    free(log->event);
    *log = (struct pressure_log){.out.fd = -1};
}

int pressure_log_add(struct pressure_log *log, const char *what, size_t sequence, size_t position,
                     struct err *err)
{
    char line[96];
    const bool converts = strcmp(what, "convert") == 0;
    const int len = snprintf(line, sizeof line, "%s %zu %zu%s\n", what, sequence, position,
                             converts ? " " PRESSURE_TYPE : "");
    return log->out.fd < 0 ? 0 : outfile_write(&log->out, line, (size_t)len, err);
}

size_t pressure_log_next(const struct pressure_log *log, size_t sequence, size_t processed)
{
    size_t next = SIZE_MAX;
    for (size_t i = 0; i < log->n_events; i++)
        if (log->event[i].sequence == sequence && log->event[i].position > processed)
            next = size_min(next, log->event[i].position);
    return next;
}
