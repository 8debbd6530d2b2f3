/* Reads JSON results of bmc-prof: rows, each with the configuration that was measured and the
 * values of its figures in each round. Files are untrusted. */
#pragma once

#include "base/json.h"

/* A result row; `all` and `samples` point into the file's JSON value. */
struct measured_row {
    const json_t *all; /* the whole row */
    /* object: name of a figure -> array of its values in 1 to COMPARE_ROUNDS rounds, from 0 to
     * 1e15; at least one figure */
    const json_t *samples;
    json_t *what; /* the fields that identify the measurement: what was measured */
};

struct measured {
    json_t *root;
    struct measured_row *row;
    size_t n;
    json_t *index; /* object: a row's identifying fields as text -> index of the row */
};

/* The error in the row of a failed measurement; NULL: it did not fail. */
const char *measured_error(const json_t *row);

/* Parses a result file, called `name` in errors. Skips rows of failed measurements; two rows that
 * measured the same are an error. */
int measured_parse(struct measured *measured, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;
void measured_release(struct measured *measured);

/* Sets *row to the row that measured the same as `like`, or to NULL. Returns -1 if out of
 * memory. */
int measured_find(const struct measured *measured, const struct measured_row *like,
                  const struct measured_row **row, struct err *err) MUST_USE;

/* Copies a figure's value in each round to round[] and returns their number; 0: the row does not
 * have the figure. */
size_t measured_rounds(const struct measured_row *row, const char *figure, double *round);
