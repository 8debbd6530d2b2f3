/* Result rows (JSON objects) made from records (C structs) by tables of fields: one line of a table says how a
 * member is named, how it is summarised over rounds, and when it is shown. */
#pragma once

#include "base/json.h"

/* Type of a record's member, and which of its values means "not measured", null in JSON. */
enum field_kind {
    FIELD_TEXT, /* const char *: any bytes; NULL */
    FIELD_BOOL, /* bool */

    FIELD_INT,   /* int */
    FIELD_SIZE,  /* size_t; SIZE_MAX */
    FIELD_COUNT, /* int64_t; negative */
    FIELD_WHOLE, /* uint64_t */
    FIELD_REAL,  /* double; not finite */
    FIELD_BYTES, /* double: a whole number while a double holds it exactly */
    FIELD_NAME   /* no member: the caller adds the value */
};

/* How a figure of several rounds becomes one number; FIELD_LAST also for members that are no numbers. */
enum field_stat { FIELD_LAST, FIELD_MEDIAN, FIELD_MEAN, FIELD_SD, FIELD_MIN, FIELD_MAX };

enum field_flags {
    FIELD_MAIN = 1,      /* a column of tables by default */
    FIELD_SETUP = 2,     /* stated above tables, unless it is a column */
    FIELD_AXIS = 4,      /* a column only if rows differ in it */
    FIELD_TEST = 8,      /* also in rows of measurements that failed; identifies what was measured */
    FIELD_IDENTITY = 16, /* identifies what was measured */
    FIELD_SAMPLES = 32,  /* its rounds are kept in "samples" */
    FIELD_MACHINE = 64,  /* also in rows that are about the machine only */
    FIELD_ALL = 128      /* every field, with flags or without */
};

struct row_field {
    const char *name;
    enum field_kind kind;
    size_t at; /* offset in the record */
    unsigned flags;
    enum field_stat stat;
};

/* Adds the fields that have one of the `flags`, of `rounds` records of `size` bytes. */
int fields_put(json_t *row, const struct row_field *fields, unsigned flags, const void *record,
               size_t rounds, size_t size, struct err *err) MUST_USE;

/* Adds "samples": an object with the rounds of every field with FIELD_SAMPLES. Tables end with a field without a
 * name. */
int fields_put_samples(json_t *row, const struct row_field *fields, const void *record, size_t rounds,
                       size_t size, struct err *err) MUST_USE;

/* The field whose name is text[0..len); NULL: none. */
const struct row_field *field_find(const struct row_field *fields, const char *text, size_t len);

/* Appends the finished row to `rows` if `rc` is 0; takes ownership of the row in any case. */
int fields_end(int rc, json_t *row, json_t *rows, struct err *err) MUST_USE;
