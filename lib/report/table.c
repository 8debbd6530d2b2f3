/* Formats result rows as tables, CSV and JSON. */
#include "report/table.h"

#include "base/text_util.h"

/* ---- units ---- */

/* Returns the position of "_ms" in a column's name, or NULL. */
static const char *find_ms(const char *column)
{
    for (const char *at = column; (at = strstr(at, "_ms")); at++)
        if (at[3] == 0 || at[3] == '_')
            return at;
    return NULL;
}

static bool unit_is_bytes(const char *column) { return text_ends(column, "_bytes"); }

static bool unit_is_time(const char *column) { return find_ms(column) != NULL; }

struct unit unit_of_times(double largest_ms)
{
    static const struct unit units[] = {{"s", 1e3}, {"ms", 1}, {"us", 1e-3}, {"ns", 1e-6}};
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(units) && fabs(largest_ms) < units[i].ms * (i ? 1 : 10))
        i++;
    return units[i];
}

/* Formats a number with `digits` significant digits, but never rounds the integer part. */
static int format_digits(double value, int digits, char *text, size_t size)
{
    const double x = fabs(value);
    int decimals = digits - 1;
    for (double limit = 10; decimals > 0 && x >= limit; limit *= 10)
        decimals--;
    if (x == 0)
        return snprintf(text, size, "0");
    if (x < 1 || x >= 1e15)
        return snprintf(text, size, "%#.*g", digits, value);
    return snprintf(text, size, "%.*f", decimals, value);
}

void unit_format(const char *column, const struct unit *time, double value, char *text, size_t size)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const char *name = NULL;
    int digits = 4;
    if (find_ms(column)) {
        name = time->name;
        value /= time->ms;
        digits = 3;
    } else if (unit_is_bytes(column)) {
        size_t i = 0;
        while (i + 1 < ARRAY_LEN(names) && fabs(value) >= 1024)
            value /= 1024, i++;
        name = names[i];
        digits = i ? 3 : 1;
    }
    const int len = format_digits(value, digits, text, size);
    if (name && len > 0 && (size_t)len < size)
        snprintf(text + len, size - (size_t)len, " %s", name);
}

/* The heading of a column whose cells have units: its name without "_ms". */
static void unit_heading(const char *column, char *text, size_t size)
{
    const char *ms = find_ms(column);
    if (ms)
        snprintf(text, size, "%.*s%s", (int)(ms - column), column, ms + 3);
    else
        snprintf(text, size, "%s", column);
}

/* ---- JSON text ---- */

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
    AUTO(buf_release) struct buf text = {0};
    return json_append(value, flags | JSON_ENCODE_ANY, &text, err) < 0
               ? -1
               : add_escaped(out, text.data, text.len, err);
}

static int append_json(const json_t *value, size_t flags, struct buf *out, struct err *err)
{
    return json_format(value, flags | JSON_REAL_PRECISION(9), out, err);
}

int json_write_line(const json_t *value, struct buf *out, struct err *err)
{
    if (append_json(value, JSON_COMPACT, out, err) < 0)
        return -1;
    return buf_add(out, "\n", 1, err);
}

/* ---- tables: the texts of all cells, then the widths of columns ---- */

struct cell {
    struct buf text;
    bool number; /* right-aligned */
};

/* Line 0 has the headings; cells of a line follow each other. */
struct grid {
    enum table_format format;
    bool human;       /* rounded numbers with units */
    struct unit time; /* one unit for all times of the table, so that they compare easily */
    json_t *keys;     /* of all rows, in order of first appearance */
    size_t lines, columns;
    struct cell *cell;
};

static int collect_keys(struct grid *grid, const json_t *rows, struct err *err)
{
    double largest_ms = 0;
    const char *key;
    json_t *value;
    grid->keys = json_object();
    int rc = grid->keys ? 0 : err_no_memory(err, "a table");
    for (size_t i = 0; i < json_array_size(rows); i++)
        json_object_foreach(json_array_get(rows, i), key, value)
        {
            if (rc == 0 && !json_object_get(grid->keys, key))
                rc = json_put(grid->keys, key, json_incref(value), err);
            if (unit_is_time(key))
                largest_ms = fmax(largest_ms, fabs(json_number_value(value)));
        }
    grid->time = unit_of_times(largest_ms);
    grid->lines = 1 + json_array_size(rows);
    grid->columns = json_object_size(grid->keys);
    return rc;
}

/* The text of a value, or of a heading: control characters are replaced, as rows may come from an untrusted file, but
 * for tabs and line feeds in CSV. Missing values are "-", or empty in CSV. */
static int fill_cell(const struct grid *grid, const char *key, bool heading, const json_t *value,
                     struct cell *cell, struct err *err)
{
    const bool csv = grid->format == TABLE_CSV, missing = !value || json_is_null(value);
    const bool unit = json_is_real(value) || (json_is_integer(value) && unit_is_bytes(key));
    struct buf *text = &cell->text;
    char rounded[256];
    int rc;
    cell->number = json_is_number(value);
    if (heading && grid->human)
        unit_heading(key, rounded, sizeof rounded);
    if (heading)
        rc = buf_addf(text, err, "%s", grid->human ? rounded : key);
    else if (missing)
        rc = buf_addf(text, err, "%s", csv ? "" : "-");
    else if (json_is_string(value))
        rc = buf_add(text, json_string_value(value), json_string_length(value), err);
    else if (grid->human && unit)
        rc = (unit_format(key, &grid->time, json_number_value(value), rounded, sizeof rounded),
              buf_addf(text, err, "%s", rounded));
    else if (json_is_real(value))
        rc = buf_addf(text, err, "%.6g", json_real_value(value));
    else
        rc = append_json(value, JSON_COMPACT, text, err);
    if (text->len)
        text_make_printable(text->data, text->len, csv && !heading ? "\t\n" : "");
    return rc;
}

static int fill_grid(struct grid *grid, const json_t *rows, struct err *err)
{
    struct cell *cell = grid->cell = calloc(grid->lines * grid->columns + 1, sizeof *cell);
    int rc = cell ? 0 : err_no_memory(err, "a table");
    for (size_t line = 0; line < grid->lines; line++) {
        const char *key;
        json_t *first;
        json_object_foreach(grid->keys, key, first)
        {
            const json_t *value = line ? json_object_get(json_array_get(rows, line - 1), key) : first;
            if (rc == 0)
                rc = fill_cell(grid, key, !line, value, cell++, err);
        }
    }
    return rc;
}

/* Number of characters of a UTF-8 text. */
static size_t width_of(const struct cell *cell)
{
    size_t width = 0;
    for (size_t i = 0; i < cell->text.len; i++)
        width += ((unsigned char)cell->text.data[i] & 0xc0) != 0x80;
    return width;
}

/* Appends a text in which every `special` character follows `escape`. */
static int put_escaped(const struct buf *text, char special, const char *escape, struct buf *out,
                       struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < text->len && rc == 0; i++)
        rc = text->data[i] == special ? buf_addf(out, err, "%s%c", escape, special)
                                      : buf_add(out, &text->data[i], 1, err);
    return rc;
}

/* Quotes a cell that contains a comma, quote or line end (RFC 4180). */
static int put_csv(const struct buf *text, struct buf *out, struct err *err)
{
    bool quote = false;
    for (size_t i = 0; i < text->len; i++)
        quote = quote || strchr(",\"\r\n", text->data[i]);
    if (!quote)
        return buf_add(out, buf_text(text), text->len, err);
    return buf_add(out, "\"", 1, err) < 0 || put_escaped(text, '"', "\"", out, err) < 0
               ? -1
               : buf_add(out, "\"", 1, err);
}

/* Pads a cell to `width`: numbers are right-aligned, other values left-aligned. */
static int put_padded(const struct cell *cell, size_t width, bool markdown, struct buf *out,
                      struct err *err)
{
    const int pad = (int)(width - size_min(width_of(cell), width));
    if (buf_addf(out, err, "%*s", cell->number ? pad : 0, "") < 0 ||
        put_escaped(&cell->text, markdown ? '|' : '\0', "\\", out, err) < 0)
        return -1;
    return buf_addf(out, err, "%*s", cell->number ? 0 : pad, "");
}

static int put_line(const struct grid *grid, size_t line, const size_t *width, struct buf *out,
                    struct err *err)
{
    static const struct {
        const char *before, *between, *after;
    } frames[] = {[TABLE_TEXT] = {"", "  ", "\n"},
                  [TABLE_MD] = {"| ", " | ", " |\n"},
                  [TABLE_CSV] = {"", ",", "\n"}};
    const struct cell *cell = grid->cell + line * grid->columns;
    int rc = buf_addf(out, err, "%s", frames[grid->format].before);
    for (size_t i = 0; rc == 0 && i < grid->columns; i++) {
        rc = i ? buf_addf(out, err, "%s", frames[grid->format].between) : 0;
        if (rc == 0)
            rc = grid->format == TABLE_CSV
                     ? put_csv(&cell[i].text, out, err)
                     : put_padded(&cell[i], width[i], grid->format == TABLE_MD, out, err);
    }
    while (grid->format == TABLE_TEXT && out->len && out->data[out->len - 1] == ' ')
        out->len--; /* no trailing blanks in a text table */
    return rc < 0 ? -1 : buf_addf(out, err, "%s", frames[grid->format].after);
}

static int put_grid(const struct grid *grid, struct buf *out, struct err *err)
{
    AUTO(free_auto) size_t *width = calloc(grid->columns + 1, sizeof *width);
    int rc = width ? 0 : err_no_memory(err, "a table");
    for (size_t i = 0; rc == 0 && i < grid->lines * grid->columns; i++)
        width[i % grid->columns] = size_max(width[i % grid->columns], width_of(&grid->cell[i]));
    for (size_t line = 0; rc == 0 && line < grid->lines; line++) {
        rc = put_line(grid, line, width, out, err);
        for (size_t i = 0; rc == 0 && !line && grid->format == TABLE_MD && i < grid->columns; i++)
            rc = buf_addf(out, err, "| --- %s", i + 1 < grid->columns ? "" : "|\n");
    }
    return rc;
}

/* Writes a format that has columns: text, Markdown or CSV. */
static int write_columns(const json_t *rows, enum table_format format, bool human, struct buf *out,
                         struct err *err)
{
    struct grid grid = {.format = format, .human = human};
    int rc = collect_keys(&grid, rows, err);
    if (rc == 0 && (rc = fill_grid(&grid, rows, err)) == 0)
        rc = put_grid(&grid, out, err);
    for (size_t i = 0; grid.cell && i < grid.lines * grid.columns; i++)
        buf_release(&grid.cell[i].text);
    free(grid.cell);
    json_decref(grid.keys);
    return rc;
}

/* ---- JSON ---- */

static int write_json(const json_t *rows, const json_t *about, struct buf *out, struct err *err)
{
    AUTO(json_auto)
    json_t *whole = json_object(); /* not json_copy(): it silently omits what it cannot allocate */
    int rc = whole ? 0 : err_no_memory(err, "JSON text");
    if (rc == 0 && about && json_object_update(whole, (json_t *)(uintptr_t)about) < 0)
        rc = err_no_memory(err, "JSON text");
    if (rc == 0 && rows)
        rc = json_put(whole, "rows", json_incref((json_t *)(uintptr_t)rows), err);
    if (rc == 0)
        rc = append_json(whole, JSON_INDENT(1), out, err);
    return rc < 0 ? -1 : buf_add(out, "\n", 1, err);
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
        AUTO(json_auto) json_t *row = json_object();
        for (size_t c = 0; c < n && rc == 0; c++) {
            json_t *value = json_object_get(json_array_get(rows, i), columns[c]);
            rc = value ? json_put(row, columns[c], json_incref(value), err) : 0;
        }
        if (rc == 0)
            rc = json_push(*picked, json_incref(row), err);
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
