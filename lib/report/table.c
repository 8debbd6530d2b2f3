/* Formats result rows as tables, CSV and JSON. */
#include "report/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/units.h"

/* Appends JSON text, escaping control characters that JSON leaves alone but terminals obey: 0x7f
 * and U+0080 to U+009F (c2 80 to c2 9f). In valid JSON they occur in strings only. */
static int add_escaped(struct buf *out, const char *text, size_t len, struct err *err)
{
    size_t from = 0;
    int rc = 0;
    for (size_t at = 0; at < len && rc == 0; at++) {
        const unsigned char byte = (unsigned char)text[at],
                            next = at + 1 < len ? (unsigned char)text[at + 1] : 0;
        const bool c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;
        if (byte != 0x7f && !c1)
            continue;
        rc = buf_add(out, text + from, at - from, err);
        if (rc == 0)
            rc = buf_addf(out, err, "\\u%04x", c1 ? next : byte);
        at += c1;
        from = at + 1;
    }
    return rc < 0 ? -1 : buf_add(out, text + from, len - from, err);
}

int json_format(const json_t *value, size_t flags, struct buf *out, struct err *err)
{
    struct buf text = {0};
    int rc = json_append(value, flags | JSON_ENCODE_ANY, &text, err);
    if (rc == 0)
        rc = add_escaped(out, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

static int dump(const json_t *value, size_t flags, struct buf *out, struct err *err)
{
    return json_format(value, flags | JSON_REAL_PRECISION(9), out, err);
}

int json_write_line(const json_t *value, struct buf *out, struct err *err)
{
    if (dump(value, JSON_COMPACT, out, err) < 0)
        return -1;
    return buf_add(out, "\n", 1, err);
}

/* Appends a JSON value as plain text. */
static int cell_text(const json_t *value, struct buf *out, struct err *err)
{
    if (json_is_string(value))
        return buf_add(out, json_string_value(value), json_string_length(value), err);
    if (json_is_real(value))
        return buf_addf(out, err, "%.6g", json_real_value(value));
    if (!value || json_is_null(value))
        return buf_add(out, "-", 1, err);
    return dump(value, JSON_COMPACT, out, err);
}

/* Number of characters of a UTF-8 text. */
static size_t width_of(const char *text, size_t len)
{
    size_t width = 0;
    for (size_t i = 0; i < len; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* A column of the text and Markdown tables. */
struct column {
    const char *key;
    bool markdown, human; /* human: rounded numbers with units */
    struct unit time;     /* unit of all times, if human */
    size_t width;
};

static int column_text(const struct column *column, const json_t *value, struct buf *out,
                       struct err *err)
{
    char text[64];
    const bool bytes = json_is_integer(value) && unit_is_bytes(column->key);
    if (!column->human || !(json_is_real(value) || bytes))
        return cell_text(value, out, err);
    unit_format(column->key, &column->time, json_number_value(value), text, sizeof text);
    return buf_addf(out, err, "%s", text);
}

/* Formats a cell of a text or Markdown table: replaces control characters; in Markdown, escapes
 * |. */
static int plain_cell(const struct column *column, const json_t *value, struct buf *cell,
                      struct err *err)
{
    const bool markdown = column->markdown;
    struct buf raw = {0};
    buf_clear(cell);
    int rc = column_text(column, value, &raw, err);
    if (rc == 0 && raw.len)
        text_make_printable(raw.data, raw.len, "");
    for (size_t i = 0; i < raw.len && rc == 0; i++)
        rc = markdown && raw.data[i] == '|' ? buf_add(cell, "\\|", 2, err)
                                            : buf_add(cell, &raw.data[i], 1, err);
    if (rc == 0)
        rc = buf_add(cell, "", 0, err);
    buf_release(&raw);
    return rc;
}

/* Pads a cell to `width`: numbers are right-aligned, other values left-aligned. */
static int put_padded(const struct buf *cell, bool number, size_t width, struct buf *out,
                      struct err *err)
{
    const size_t have = width_of(cell->data, cell->len);
    const int pad = (int)(width - size_min(have, width));
    return number ? buf_addf(out, err, "%*s%s", pad, "", cell->data)
                  : buf_addf(out, err, "%s%*s", cell->data, pad, "");
}

/* Returns an object with the keys of all rows, in order of first appearance. NULL on error. */
static json_t *columns_of(const json_t *rows, struct err *err)
{
    json_t *columns = json_object(), *row, *value;
    const char *key;
    size_t i;
    int rc = columns ? 0 : err_no_memory(err, "a table");
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        json_object_foreach(row, key, value)
        {
            if (rc == 0 && !json_object_get(columns, key))
                rc = json_put(columns, key, json_incref(value), err);
        }
    }
    if (rc == 0)
        return columns;
    json_decref(columns);
    return NULL;
}

/* Formats a column's heading; replaces control characters, as rows may come from an untrusted
 * file. */
static int column_name(const char *name, bool human, struct buf *cell, struct err *err)
{
    char heading[256];
    buf_clear(cell);
    if (human)
        unit_heading(name, heading, sizeof heading);
    if (buf_addf(cell, err, "%s", human ? heading : name) < 0)
        return -1;
    text_make_printable(cell->data, cell->len, "");
    return 0;
}

/* Sets the width of a column to that of its widest cell or heading. */
static int measure(const json_t *rows, struct column *column, struct err *err)
{
    struct buf cell = {0};
    int rc = column_name(column->key, column->human, &cell, err);
    if (rc == 0)
        column->width = width_of(cell.data, cell.len);
    for (size_t i = 0; rc == 0 && i < json_array_size(rows); i++) {
        rc = plain_cell(column, json_object_get(json_array_get(rows, i), column->key), &cell, err);
        if (rc == 0)
            column->width = size_max(column->width, width_of(cell.data, cell.len));
    }
    buf_release(&cell);
    return rc;
}

/* Chooses one unit for all times of the table, so that they compare easily. */
static struct unit time_unit(const json_t *rows)
{
    double largest = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            if (unit_is_time(key))
                largest = fmax(largest, fabs(json_number_value(value)));
        }
    }
    return unit_of_times(largest);
}

/* Text before, between and after the cells of a table line. */
struct table_frame {
    const char *before, *between, *after;
};

static int end_line(const struct table_frame *frame, struct buf *out, struct err *err)
{
    while (out->len && !*frame->before && out->data[out->len - 1] == ' ')
        out->len--; /* no trailing blanks in a text table */
    return buf_addf(out, err, "%s", frame->after);
}

/* Writes one line: the headings if row is NULL, else a row's cells. */
static int put_line(json_t *columns, const json_t *row, const struct column *column,
                    const struct table_frame *frame, struct buf *out, struct err *err)
{
    struct buf cell = {0};
    const char *key;
    json_t *value;
    size_t i = 0;
    int rc = buf_addf(out, err, "%s", frame->before);
    json_object_foreach(columns, key, value)
    {
        const json_t *at = row ? json_object_get(row, key) : value;
        if (rc == 0 && i)
            rc = buf_addf(out, err, "%s", frame->between);
        buf_clear(&cell);
        if (rc == 0)
            rc = row ? plain_cell(&column[i], at, &cell, err)
                     : column_name(key, column[i].human, &cell, err);
        if (rc == 0)
            rc = put_padded(&cell, json_is_number(at), column[i].width, out, err);
        i++;
    }
    buf_release(&cell);
    return rc < 0 ? -1 : end_line(frame, out, err);
}

/* Writes a text or Markdown table. */
static int write_padded(const json_t *rows, json_t *columns, bool markdown, bool human, struct buf *out,
                        struct err *err)
{
    static const struct table_frame frames[] = {{"", "  ", "\n"}, {"| ", " | ", " |\n"}};
    const struct table_frame *frame = &frames[markdown];
    const size_t n = json_object_size(columns);
    const struct unit time = time_unit(rows);
    struct column *column = calloc(n + 1, sizeof *column);
    const char *key;
    json_t *value;
    size_t at = 0;
    int rc = column ? 0 : err_no_memory(err, "a table");
    json_object_foreach(columns, key, value)
    {
        if (rc == 0) {
            column[at] =
                (struct column){.key = key, .markdown = markdown, .human = human, .time = time};
            rc = measure(rows, &column[at++], err);
        }
    }
    if (rc == 0)
        rc = put_line(columns, NULL, column, frame, out, err);
    for (size_t i = 0; rc == 0 && markdown && i < n; i++)
        rc = buf_addf(out, err, "| --- %s", i + 1 < n ? "" : "|\n");
    for (size_t i = 0; rc == 0 && i < json_array_size(rows); i++)
        rc = put_line(columns, json_array_get(rows, i), column, frame, out, err);
    free(column);
    return rc;
}

/* Formats a CSV cell: tabs and line feeds stay, other control characters are replaced. */
static int csv_cell(const json_t *value, struct buf *cell, struct err *err)
{
    buf_clear(cell);
    if (value && !json_is_null(value) && cell_text(value, cell, err) < 0)
        return -1;
    if (cell->len)
        text_make_printable(cell->data, cell->len, "\t\n");
    return 0;
}

/* Quotes a cell that contains a comma, quote or line end (RFC 4180). */
static int put_csv(const char *text, size_t len, struct buf *out, struct err *err)
{
    bool quote = false;
    for (size_t i = 0; i < len; i++)
        quote = quote || strchr(",\"\r\n", text[i]);
    if (!quote)
        return buf_add(out, text, len, err);
    if (buf_add(out, "\"", 1, err) < 0)
        return -1;
    for (size_t i = 0; i < len; i++)
        if (buf_add(out, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1, err) < 0)
            return -1;
    return buf_add(out, "\"", 1, err);
}

static int write_csv(const json_t *rows, json_t *columns, struct buf *out, struct err *err)
{
    const char *key;
    json_t *value, *row;
    size_t i, n = 0;
    struct buf cell = {0};
    int rc = -1;
    json_object_foreach(columns, key, value)
    {
        if ((n++ && buf_add(out, ",", 1, err) < 0) || column_name(key, false, &cell, err) < 0 ||
            put_csv(cell.data, cell.len, out, err) < 0)
            goto out;
    }
    if (buf_add(out, "\n", 1, err) < 0)
        goto out;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        n = 0;
        json_object_foreach(columns, key, value)
        {
            if ((n++ && buf_add(out, ",", 1, err) < 0) ||
                csv_cell(json_object_get(row, key), &cell, err) < 0 ||
                (cell.len && put_csv(cell.data, cell.len, out, err) < 0))
                goto out;
        }
        if (buf_add(out, "\n", 1, err) < 0)
            goto out;
    }
    rc = 0;
out:
    buf_release(&cell);
    return rc;
}

static int write_json(const json_t *rows, const json_t *about, struct buf *out, struct err *err)
{
    json_t *whole = json_object(); /* not json_copy(): it silently omits what it cannot allocate */
    int rc = whole ? 0 : err_no_memory(err, "JSON text");
    if (rc == 0 && about && json_object_update(whole, (json_t *)(uintptr_t)about) < 0)
        rc = err_no_memory(err, "JSON text");
    if (rc == 0 && rows)
        rc = json_put(whole, "rows", json_incref((json_t *)(uintptr_t)rows), err);
    if (rc == 0)
        rc = dump(whole, JSON_INDENT(1), out, err);
    json_decref(whole);
    return rc < 0 ? -1 : buf_add(out, "\n", 1, err);
}

/* Writes a format that has columns: text, Markdown or CSV. */
static int write_columns(const json_t *rows, enum table_format format, bool human, struct buf *out,
                         struct err *err)
{
    json_t *columns = columns_of(rows, err);
    int rc = -1;
    if (columns && format == TABLE_CSV)
        rc = write_csv(rows, columns, out, err);
    else if (columns)
        rc = write_padded(rows, columns, format == TABLE_MD, human, out, err);
    json_decref(columns);
    return rc;
}

static int write_lines(const json_t *rows, struct buf *out, struct err *err)
{
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        if (json_write_line(row, out, err) < 0)
            return -1;
    }
    return 0;
}

int table_pick(const json_t *rows, const char *const *columns, size_t n, json_t **picked,
               struct err *err)
{
    *picked = json_array();
    int rc = *picked ? 0 : err_no_memory(err, "rows");
    for (size_t i = 0; i < json_array_size(rows) && rc == 0; i++) {
        json_t *row = json_object();
        for (size_t c = 0; c < n && rc == 0; c++) {
            json_t *value = json_object_get(json_array_get(rows, i), columns[c]);
            rc = value ? json_put(row, columns[c], json_incref(value), err) : 0;
        }
        if (rc == 0)
            rc = json_push(*picked, json_incref(row), err);
        json_decref(row);
    }
    return rc;
}

int table_write(const json_t *rows, const json_t *about, enum table_format format, struct buf *out,
                struct err *err)
{
    switch (format) {
    case TABLE_JSON: return write_json(rows, about, out, err);
    case TABLE_JSONL: return write_lines(rows, out, err);
    default: return write_columns(rows, format, false, out, err);
    }
}

int table_write_human(const json_t *rows, enum table_format format, struct buf *out, struct err *err)
{
    return write_columns(rows, format, true, out, err);
}
