/* Reads JSON results of bmc-prof: rows, each with the configuration that was measured and the
 * values of its figures in each round. Files are untrusted. */
#ifndef BMC_SAMPLES_H
#define BMC_SAMPLES_H

#include "base/json.h"

/* A row; pointers refer to the file's JSON value. */
struct measured_row {
    const json_t *all; /* all members of the row */
    /* object: figure -> array of 1 to COMPARE_ROUNDS rounds, 0 to 1e15; at least one figure */
    const json_t *samples;
    json_t *what; /* the members that identify the measurement */
};

struct measured {
    json_t *root;
    struct measured_row *row;
    size_t n;
    json_t *index; /* identity as text -> index of the row */
};

/* The error of a failed measurement; NULL: none. */
const char *measured_error(const json_t *row);

/* Parses a file, called `name` in errors. Skips failed rows; rejects duplicate identities. */
int measured_parse(struct measured *measured, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;
void measured_release(struct measured *measured);

/* Finds the row with the same identity, or NULL; -1: out of memory. */
int measured_find(const struct measured *measured, const struct measured_row *like,
                  const struct measured_row **row, struct err *err) MUST_USE;

/* Replaces the rounds of each figure by their median, as one round. */
int measured_fold(struct measured *measured, struct err *err) MUST_USE;

/* Appends the medians of another run as a further round; a figure that `run` lacks is an error. */
int measured_add(struct measured *measured, const struct measured *run, struct err *err) MUST_USE;

/* Copies the rounds of a figure; 0: the row does not have it. */
size_t measured_rounds(const struct measured_row *row, const char *figure, double *round);

#endif
