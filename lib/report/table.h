/* Formats result rows as a text table, Markdown, CSV, JSON or JSON Lines. */
#pragma once

#include "base/json.h"
#include "base/mem.h"

/* Values of --format; TABLE_FORMATS names them, in the same order. */
enum table_format { TABLE_TEXT, TABLE_MD, TABLE_CSV, TABLE_JSON, TABLE_JSONL };
#define TABLE_FORMATS "table|md|csv|json|jsonl"

/* Appends `rows`, an array of objects, to `out`. Columns are the keys of all rows in order of first
 * appearance. JSON output is one object: the members of `about` (may be NULL), then "rows" (unless
 * `rows` is NULL). Other formats omit `about`. */
int table_write(const json_t *rows, const json_t *about, enum table_format format, struct buf *out,
                struct err *err) MUST_USE;

/* Appends `rows` to `out` as a text or Markdown table, numbers rounded and with units. */
int table_write_human(const json_t *rows, enum table_format format, struct buf *out,
                      struct err *err) MUST_USE;

/* Sets *picked to rows with the n members that `columns` names, in that order, omitting those that a row lacks. The
 * caller releases *picked, after an error too. */
int table_pick(const json_t *rows, const char *const *columns, size_t n, json_t **picked,
               struct err *err) MUST_USE;

/* ---- rounded numbers with units ----
 *
 * Columns whose names end in _bytes are sizes, those whose names end in _ms or contain _ms_ times. */

/* A unit of time: its name and its length in ms. */
struct unit {
    const char *name;
    double ms;
};

/* The unit for times of up to largest_ms: the largest in which that is at least 1, but seconds only
 * from 10 s. */
struct unit unit_of_times(double largest_ms);

/* Formats a number of the column named `column`: a time in unit `time` ("35.1 ms"), a size ("1.25
 * GiB"), else with at least 4 digits. */
void unit_format(const char *column, const struct unit *time, double value, char *text, size_t size);

/* ---- JSON ---- */

/* Appends a value to `out` as JSON; `flags` are jansson's. Escapes all control characters,
 * including 0x7f and U+0080 to U+009F. */
int json_format(const json_t *value, size_t flags, struct buf *out, struct err *err) MUST_USE;

/* Appends a value to `out` as a line of compact JSON. */
int json_write_line(const json_t *value, struct buf *out, struct err *err) MUST_USE;
