/* What bmc-prof wrote as JSON, read again: rows, each with what it measured and with the rounds of its figures. The file
 * is treated as hostile. */
#ifndef BMC_SAMPLES_H
#define BMC_SAMPLES_H

#include "base/json.h"

/* One row: all pointers are into the file's values. */
struct measured_row {
    const json_t *all; /* all members */
    const json_t *
        samples; /* figure -> its rounds: 1 to COMPARE_ROUNDS numbers from 0 to 1e15; at least one figure */
    json_t *what; /* the members that say what was measured */
};

struct measured {
    json_t *root;
    struct measured_row *row;
    size_t n;
    json_t *index; /* what, as text -> number of the row */
};

/* Why a row of the file could not be measured; NULL when it was. */
const char *measured_error(const json_t *row);

/* `name` names the file in errors. Rows that could not be measured are left out. Two rows that measured the same are an error. */
int measured_parse(struct measured *measured, const char *text, size_t size, const char *name,
                   struct err *err) MUST_USE;
void measured_release(struct measured *measured);

/* The row that measured the same, or NULL; -1 when memory is short. */
int measured_find(const struct measured *measured, const struct measured_row *like,
                  const struct measured_row **row, struct err *err) MUST_USE;

/* Replaces the rounds of each figure by their median. */
int measured_fold(struct measured *measured, struct err *err) MUST_USE;

/* Adds the medians of another run of the same thing as further rounds; a run that lacks a figure is an error. */
int measured_add(struct measured *measured, const struct measured *run, struct err *err) MUST_USE;

/* The rounds of a figure of a row that was read; 0 when it has none of that name. */
size_t measured_rounds(const struct measured_row *row, const char *figure, double *round);

#endif
