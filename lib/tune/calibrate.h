/* Measuring the constants of the cost model, with the project's own grow-and-copy and attention. */
#ifndef BMC_CALIBRATE_H
#define BMC_CALIBRATE_H

#include "decode/session.h"
#include "tune/block.h"
#include "tune/curve.h"

/* How long and over which sizes. */
struct calibrate_plan {
    size_t points; /* sizes, 5 to CURVE_POINTS */
    double min_bytes,
        max_bytes;            /* of K and V; spread evenly on a logarithmic axis, whole tiles of rows */
    double seconds_per_point; /* samples are taken for so long in every pass */
    size_t
        samples; /* and at least so many; 3, in a single pass, where getting there takes four times as long */
};

enum { CALIBRATE_MAX_SAMPLES = 64, CALIBRATE_MAX_PASSES = 3 };

/* A curve in the making. Several passes over many curves, in turns, see a machine whose speed moves with what its neighbours
 * do at several moments; the median is of all of them. */
struct calibration {
    struct tune_run run;
    enum curve_what what;
    size_t n, rows[CURVE_POINTS], samples[CURVE_POINTS];
    bool slow[CURVE_POINTS]; /* one pass has to do */
    double sample[CURVE_POINTS][CALIBRATE_MAX_PASSES * CALIBRATE_MAX_SAMPLES];
};

/* Constant `what` for run->k query rows and run->batch sequences (copy and alloc: one row, one sequence). Sizes beyond a
 * quarter of the memory that is free are left out. */
void calibration_begin(struct calibration *calibration, const struct tune_run *run,
                       enum curve_what what, const struct calibrate_plan *plan);

/* Samples of every size. */
int calibration_pass(struct calibration *calibration, const struct calibrate_plan *plan,
                     struct err *err) MUST_USE;

/* What the passes came to. */
int calibration_curve(const struct calibration *calibration, struct curve *curve,
                      struct err *err) MUST_USE;

/* ---- free rows ---- */

enum { FREE_ROW_COUNTS = 10 };
extern const size_t free_row_counts[FREE_ROW_COUNTS]; /* 1, 2, 4, 8, 12, 16, 24, 32, 48, 64 */

/* Probabilities that a candidate is accepted, for which profile and reports say how many to verify at a time. */
enum { FREE_ROW_ACCEPTANCES = 5 };
extern const double free_row_acceptance[FREE_ROW_ACCEPTANCES];

struct free_rows {
    size_t n; /* counts measured: those that the context holds */
    double step_ms[FREE_ROW_COUNTS], spread[FREE_ROW_COUNTS];
    size_t samples;
    size_t
        free; /* the last count before the first whose step takes more than 1.15 times that of one row */
};

/* Times whole model steps of 1 to 64 rows of one sequence that has `context` rows already, logits of all rows included;
 * `rounds` rounds in which all counts take turns. */
int calibrate_free_rows(const struct model *model, const struct session_options *options,
                        size_t context, size_t rounds, const volatile sig_atomic_t *interrupted,
                        struct free_rows *rows, struct err *err) MUST_USE;

/* Finds `free` from the times. */
void free_rows_judge(struct free_rows *rows);

/* How many candidates to verify at a time, 0 for none, when each is accepted with probability `acceptance` after its
 * predecessor was: the k whose expected tokens (1 - a^(k+1)) / (1 - a) per step of k + 1 rows are the most a second. What
 * drafting costs is left out. *speedup is over one row at a time. */
size_t free_rows_k(const struct free_rows *rows, double acceptance, double *speedup);

#endif
