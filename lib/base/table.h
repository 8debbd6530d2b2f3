/* Rows for people and for scripts: the same rows as a table, Markdown, CSV, JSON or JSON lines. */
#ifndef BMC_TABLE_H
#define BMC_TABLE_H

#include "base/json.h"
#include "base/mem.h"

/* Values of --format; TABLE_FORMATS is their spelling, in the same order. */
enum table_format { TABLE_TEXT, TABLE_MD, TABLE_CSV, TABLE_JSON, TABLE_JSONL };
#define TABLE_FORMATS "table|md|csv|json|jsonl"

/* Appends `rows`, an array of objects. Columns are the members that any of them has, in the order of their first rows.
 * JSON is one object: the members of `about` (may be NULL), then "rows" (left out if `rows` is NULL). The other formats
 * leave `about` out. */
int table_write(const json_t *rows, const json_t *about, enum table_format format, struct buf *out,
                struct err *err) MUST_USE;

/* The same as a text or Markdown table whose numbers have few digits, and units by the names of their columns (units.h). */
int table_write_human(const json_t *rows, enum table_format format, struct buf *out,
                      struct err *err) MUST_USE;

/* The members of `row` that `columns` names, separated by blanks, in that order; what it lacks is left out. The
 * result is the caller's to release, after an error, too. */
int table_pick(const json_t *row, const char *columns, json_t **picked, struct err *err) MUST_USE;

/* The same of every row. */
int table_pick_all(const json_t *rows, const char *columns, json_t **picked, struct err *err) MUST_USE;

/* Appends one value as JSON, with jansson's `flags`. Control characters are escaped, all of them: 0x7f and U+0080 to
 * U+009F, too. */
int json_spell(const json_t *value, size_t flags, struct buf *out, struct err *err) MUST_USE;

/* Appends one value as compact JSON and a newline. */
int json_write_line(const json_t *value, struct buf *out, struct err *err) MUST_USE;

#endif
