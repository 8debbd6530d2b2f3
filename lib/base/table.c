/* Rows for people and for scripts. */
#include "base/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int dump(const json_t *value, size_t flags, struct buf *out, struct err *err)
{
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(9) | JSON_ENCODE_ANY);
    if (!text)
        return err_set(err, "out of memory for JSON text, or a number that JSON cannot spell");
    const int rc = buf_add(out, text, strlen(text), err);
    free(text);
    return rc;
}

int json_write_line(const json_t *value, struct buf *out, struct err *err)
{
    if (dump(value, JSON_COMPACT, out, err) < 0)
        return -1;
    return buf_add(out, "\n", 1, err);
}

/* One value as plain text. */
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

/* Characters that text takes on a terminal, near enough: bytes that do not continue one. */
static size_t width_of(const char *text, size_t len)
{
    size_t width = 0;
    for (size_t i = 0; i < len; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* A cell of the text and Markdown tables: padded on the left for numbers, on the right for words. */
static int put_padded(const json_t *value, size_t width, struct buf *out, struct err *err)
{
    struct buf cell = {0};
    int rc = cell_text(value, &cell, err);
    const size_t have = width_of(cell.data ? cell.data : "", cell.len);
    const int pad = (int)(width - size_min(have, width));
    if (rc == 0)
        rc = json_is_number(value) ? buf_addf(out, err, "%*s%s", pad, "", cell.data ? cell.data : "")
                                   : buf_addf(out, err, "%s%*s", cell.data ? cell.data : "", pad, "");
    buf_release(&cell);
    return rc;
}

static int column_width(const json_t *rows, const char *key, size_t *width, struct err *err)
{
    struct buf cell = {0};
    size_t i;
    json_t *row;
    int rc = 0;
    *width = strlen(key);
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        buf_clear(&cell);
        if ((rc = cell_text(json_object_get(row, key), &cell, err)) < 0)
            break;
        *width = size_max(*width, width_of(cell.data ? cell.data : "", cell.len));
    }
    buf_release(&cell);
    return rc;
}

/* No blanks at the end of a line of the text table. */
static void trim_line(struct buf *out, bool markdown)
{
    while (out->len && !markdown && out->data[out->len - 1] == ' ')
        out->len--;
}

/* Text and Markdown differ in what stands between cells. */
static int write_padded(const json_t *rows, bool markdown, struct buf *out, struct err *err)
{
    json_t *first = json_array_get(rows, 0);
    const char *key;
    json_t *value, *row;
    size_t i, width;
    const char *const before = markdown ? "| " : "", *const after = markdown ? " |\n" : "\n";
    const char *const between = markdown ? " | " : "  ";
    struct buf rule = {0};
    int rc = -1;
    if (buf_addf(out, err, "%s", before) < 0)
        goto out;
    json_object_foreach(first, key, value)
    {
        if (column_width(rows, key, &width, err) < 0 ||
            buf_addf(out, err, "%s",
                     json_object_iter_at(first, key) == json_object_iter(first) ? "" : between) < 0 ||
            buf_addf(&rule, err, "| --- ") < 0 ||
            buf_addf(out, err, json_is_number(value) ? "%*s" : "%-*s", (int)width, key) < 0)
            goto out;
    }
    trim_line(out, markdown);
    if (buf_addf(out, err, "%s", after) < 0 || (markdown && buf_addf(out, err, "%s|\n", rule.data) < 0))
        goto out;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        bool begun = false;
        if (buf_addf(out, err, "%s", before) < 0)
            goto out;
        json_object_foreach(first, key, value)
        {
            if (column_width(rows, key, &width, err) < 0 ||
                (begun && buf_addf(out, err, "%s", between) < 0) ||
                put_padded(json_object_get(row, key), width, out, err) < 0)
                goto out;
            begun = true;
        }
        trim_line(out, markdown);
        if (buf_addf(out, err, "%s", after) < 0)
            goto out;
    }
    rc = 0;
out:
    buf_release(&rule);
    return rc;
}

/* RFC 4180: cells with a comma, quote or line end are quoted. */
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

static int write_csv(const json_t *rows, struct buf *out, struct err *err)
{
    json_t *first = json_array_get(rows, 0);
    const char *key;
    json_t *value, *row;
    size_t i, n = 0;
    struct buf cell = {0};
    int rc = -1;
    json_object_foreach(first, key, value)
    {
        if ((n++ && buf_add(out, ",", 1, err) < 0) || put_csv(key, strlen(key), out, err) < 0)
            goto out;
    }
    if (buf_add(out, "\n", 1, err) < 0)
        goto out;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        n = 0;
        json_object_foreach(first, key, value)
        {
            const json_t *at = json_object_get(row, key);
            buf_clear(&cell);
            if ((n++ && buf_add(out, ",", 1, err) < 0) ||
                (at && !json_is_null(at) && cell_text(at, &cell, err) < 0) ||
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
    json_t *whole = about ? json_copy((json_t *)(uintptr_t)about) : json_object();
    int rc = -1;
    if (!whole || json_object_set(whole, "rows", (json_t *)(uintptr_t)rows) < 0)
        err_set(err, "out of memory for JSON text");
    else
        rc = dump(whole, JSON_INDENT(1), out, err);
    json_decref(whole);
    return rc < 0 ? -1 : buf_add(out, "\n", 1, err);
}

int table_write(const json_t *rows, const json_t *about, enum table_format format, struct buf *out,
                struct err *err)
{
    size_t i;
    json_t *row;
    switch (format) {
    case TABLE_TEXT: return write_padded(rows, false, out, err);
    case TABLE_MD: return write_padded(rows, true, out, err);
    case TABLE_CSV: return write_csv(rows, out, err);
    case TABLE_JSON: return write_json(rows, about, out, err);
    case TABLE_JSONL:
        json_array_foreach((json_t *)(uintptr_t)rows, i, row)
        {
            if (json_write_line(row, out, err) < 0)
                return -1;
        }
        return 0;
    }
    return 0;
}
