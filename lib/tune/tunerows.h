/* What bmc-tune prints, as JSON: constants, cells, curves, free rows. */
#ifndef BMC_TUNEROWS_H
#define BMC_TUNEROWS_H

#include "base/json.h"
#include "tune/cell.h"

/* Adds a cell as a row; null where nothing was measured. */
int add_cell_row(json_t *rows, const struct cell *cell, const struct tune_run *run, const char *shape,
                 struct err *err) MUST_USE;

/* Adds a row for each T of a cell: predicted, measured, fitted. */
int add_cell_curve(json_t *rows, const struct cell *cell, struct err *err) MUST_USE;

/* Adds a row for each policy of a measured cell: its time, and that divided by bmc's at the T used. */
int add_cell_policies(json_t *rows, const struct cell *cell, struct err *err) MUST_USE;

/* One member for each constant: its value at the largest size, spread and samples, and the same by size in `at`. Those of
 * one query row, G and type of `run`; `sdpa_mac_s_k` beside them where run->k is more than 1. NULL when memory is
 * short. */
json_t *constants_json(const struct profile *profile, const struct tune_run *run);

/* A row for each point of each curve. NULL, and the error, when memory is short. */
json_t *constants_rows(const struct profile *profile, struct err *err);

/* step_ms by count, free_rows, and k_for by acceptance; null when they were not measured, or `model` is NULL. NULL when
 * memory is short. */
json_t *free_rows_json(const struct tuned_model *model);

#endif
