/* Measures the rates of the cost model with the project's own cache and attention, and the batch
 * knee of a model (most tokens per step at no extra latency). */
#pragma once

#include "decode/session.h"
#include "tune/layer_bench.h"
#include "tune/costmodel.h"

/* KV cache sizes to measure, and how long to sample each. */
struct calibrate_plan {
    size_t points; /* number of sizes, 5 to CURVE_POINTS */
    /* bytes of K and V of one layer, smallest and largest; sizes between them are spaced
     * logarithmically and rounded to whole tiles */
    double min_bytes, max_bytes;
    double seconds_per_point; /* minimum sampling time in each pass */
    /* minimum samples in each pass; a size whose first sample takes more than four times
     * seconds_per_point gets 3 samples in a single pass */
    size_t samples;
};

enum { CALIBRATE_MAX_SAMPLES = 64, CALIBRATE_MAX_PASSES = 3 };

/* A rate curve being measured. Callers alternate the passes of several curves, so that slow drift
 * of the machine affects all of them alike; medians are over all passes. */
struct calibration {
    struct tune_run run;
    enum curve_what what;
    size_t n, rows[CURVE_POINTS], samples[CURVE_POINTS];
    bool slow[CURVE_POINTS]; /* size is too slow for more than one pass */
    double sample[CURVE_POINTS][CALIBRATE_MAX_PASSES * CALIBRATE_MAX_SAMPLES];
};

/* Prepares to measure rate `what` for run->k query positions per sequence and run->batch
 * sequences (copying and allocation: one sequence). Leaves out sizes above a quarter of the
 * available memory. */
void calibration_begin(struct calibration *calibration, const struct tune_run *run,
                       enum curve_what what, const struct calibrate_plan *plan);

/* Runs one pass: takes samples at every size, after the first pass without the slow sizes. */
int calibration_pass(struct calibration *calibration, const struct calibrate_plan *plan,
                     struct err *err) MUST_USE;

/* Sets *curve to the medians over all passes. */
int calibration_curve(const struct calibration *calibration, struct rate_curve *curve,
                      struct err *err) MUST_USE;

enum { KNEE_COUNTS = 10 };
extern const size_t knee_counts[KNEE_COUNTS]; /* timed token counts: 1, 2, 4, .., 64 */

/* Acceptance probabilities for which profiles and reports give the best draft length. */
enum { KNEE_ACCEPTANCES = 5 };
extern const double knee_acceptance[KNEE_ACCEPTANCES];

struct batch_knee {
    size_t n; /* number of token counts measured: those that fit the context */
    double step_ms[KNEE_COUNTS], spread[KNEE_COUNTS];
    size_t samples;
    /* the batch knee: the largest token count before the first one whose step takes more than 1.15
     * times the time of a single token */
    size_t tokens;
};

/* Times forward passes of 1 to 64 tokens of one sequence at context depth `context`, with logits of
 * all tokens. Each of `rounds` rounds measures every count once. */
int calibrate_batch_knee(const struct model *model, const struct session_options *options,
                         size_t context, size_t rounds, const volatile sig_atomic_t *interrupted,
                         struct batch_knee *knee, struct err *err) MUST_USE;

/* Sets the batch knee, knee->tokens, from the measured knee->step_ms. */
void batch_knee_judge(struct batch_knee *knee);

/* The draft length k with the most expected tokens per second, if each draft token is accepted with
 * probability a = `acceptance` given that its predecessor was: a step of k + 1 tokens yields (1 -
 * a^(k+1)) / (1 - a). 0: drafting does not pay. *speedup is relative to decoding without drafts.
 * The cost of drafting is ignored. */
size_t batch_knee_k(const struct batch_knee *knee, double acceptance, double *speedup);
