/* Reads the index of the papers. */
#include "paper_rows.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static const char *const papers[] = {"BMC", "BASS", "segment", "HeadInfer", "HTP"};

/* Sets the row's cells from a line "| a | b | ..."; false if it has another number of cells. */
static bool split(const char *line, size_t len, struct paper_row *row)
{
    const char *end = line + len;
    size_t n = 0;
    *row = (struct paper_row){0};
    for (const char *at = line + 1; at < end && n < PAPER_CELLS;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        if (!bar)
            break;
        const char *from = at, *to = bar;
        while (from < to && *from == ' ')
            from++;
        while (to > from && to[-1] == ' ')
            to--;
        row->cell[n++] = strndup(from, (size_t)(to - from));
        at = bar + 1;
    }
    return n == PAPER_CELLS;
}

static void row_release(struct paper_row *row)
{
    for (size_t i = 0; i < PAPER_CELLS; i++)
        free(row->cell[i]);
}

static bool is_row(const char *line, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(papers); i++) {
        const size_t name = strlen(papers[i]);
        if (len > name + 4 && memcmp(line, "| ", 2) == 0 && memcmp(line + 2, papers[i], name) == 0 &&
            memcmp(line + 2 + name, " |", 2) == 0)
            return true;
    }
    return false;
}

static int add_row(struct paper_rows *rows, const char *line, size_t len, struct err *err)
{
    if (mem_grow(&rows->row, &rows->cap, rows->n, sizeof *rows->row, err) < 0)
        return -1;
    struct paper_row row;
    if (!split(line, len, &row)) {
        row_release(&row);
        return err_set(err, "a row has fewer than %d cells: %.80s", PAPER_CELLS, line);
    }
    rows->row[rows->n++] = row;
    return 0;
}

int paper_rows_read(struct paper_rows *rows, const char *path, struct err *err)
{
    struct file_map map;
    int rc = 0;
    *rows = (struct paper_rows){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    const char *at = (const char *)map.data, *end = at + map.size;
    while (rc == 0 && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t len = (size_t)((line_end ? line_end : end) - at);
        if (is_row(at, len))
            rc = add_row(rows, at, len, err);
        at += len + 1;
    }
    file_unmap(&map);
    if (rc < 0)
        err_prefix(err, "%s", path);
    return rc;
}

void paper_rows_close(struct paper_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        row_release(&rows->row[i]);
    free(rows->row);
    *rows = (struct paper_rows){0};
}

/* Length of the kind of item that `text` begins with ("figure", "tables"), 0 if with none. */
static size_t kind_of(const char *text)
{
    static const char *const kinds[] = {"figure", "table", "eq.", "algorithm", "section"};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const size_t len = strlen(kinds[i]);
        if (strncmp(text, kinds[i], len) == 0 && text[len + (text[len] == 's')] == ' ')
            return len;
    }
    return 0;
}

bool paper_next_item(const char **at, char *kind, size_t kind_size, char *text, size_t size)
{
    if (!**at)
        return false;
    const size_t len = strcspn(*at, ","), kind_len = kind_of(*at);
    const char *number = *at;
    if (kind_len) {
        snprintf(kind, kind_size, "%.*s", (int)kind_len, *at);
        number += kind_len + ((*at)[kind_len] == 's') + 1;
    } else if (strspn(*at, "0123456789IVX") != len)
        kind[0] = 0;
    snprintf(text, size, "%s%s%.*s", kind, kind[0] ? " " : "", (int)(len - (size_t)(number - *at)),
             number);
    *at += len;
    *at += strspn(*at, ", ");
    return true;
}

void paper_anchor(const char *text, char *anchor, size_t size)
{
    size_t used = 0;
    for (; *text && used + 2 < size; text++) {
        if (isalnum((unsigned char)*text))
            anchor[used++] = (char)tolower((unsigned char)*text);
        else if (used && anchor[used - 1] != '-')
            anchor[used++] = '-';
    }
    while (used && anchor[used - 1] == '-')
        used--;
    anchor[used] = 0;
}
