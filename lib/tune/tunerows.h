/* Output of bmc-tune as JSON: rates, configuration points, curves over T, the batch knee. */
#pragma once

#include "base/json.h"
#include "tune/config_point.h"

/* Adds a configuration point as a row; fields that were not measured are null. */
int add_point_row(json_t *rows, const struct config_point *cell, const struct tune_run *run,
                  const char *shape, struct err *err) MUST_USE;

/* Adds a row for each T of a point: predicted, measured and fitted times. */
int add_point_curve(json_t *rows, const struct config_point *cell, struct err *err) MUST_USE;

/* Adds a row per policy of a measured point: its time, also relative to bmc at the T used. */
int add_point_policies(json_t *rows, const struct config_point *cell, struct err *err) MUST_USE;

/* A JSON object with one field per rate: its value at the largest size, spread, samples, and all
 * sizes in `at`; for one query position, `run`'s GQA group size and data type, and also
 * `sdpa_mac_s_k` (at run->k query positions) if run->k > 1. NULL: out of memory. */
json_t *constants_json(const struct profile *profile, const struct tune_run *run);

/* An array with a row for each point of each rate curve; NULL: out of memory. */
json_t *constants_rows(const struct profile *profile, struct err *err);

/* A JSON object: step_ms by token count, batch_knee, and k_for (best draft length by acceptance
 * rate); JSON null if not measured. NULL: out of memory. */
json_t *batch_knee_json(const struct tuned_model *model);
