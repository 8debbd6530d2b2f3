/* bmc-tune: options, jobs, output. */
#pragma once

#include "base/number.h"
#include "report/table.h"
#include "opt/opt.h"
#include "tune/tunerows.h"

struct tune_options {
    const char *model, *shape;
    const char *context, *batch, *spec, *draft, *acceptance;
    size_t layers;
    int type, kv_type, alloc, state, cores, backend;
    const char *attn, *isa, *precision, *profile, *constants;
    size_t threads, rounds, megabytes, evict;
    double seconds;
    struct seed seed;
    bool exact, no_sweep, no_knee, dry_run, force, check, verbose, quiet;
    int format; /* enum table_format; TUNE_SUMMARY: none is given */
    const char *plot, *cpu_mask;
    bool hugepages, numa;
};

extern const struct program tune_program;

enum { TUNE_MAX_LIST = 16, TUNE_MAX_POINTS = 2 * TUNE_MAX_LIST * TUNE_MAX_LIST };
#define TUNE_KNEE_SHAPE "tinyllama-1.1b" /* measures the batch knee if no model is given */
enum { TUNE_SUMMARY = -1 };
/* How often a configuration is measured while fit and measurement disagree. */
enum { TUNE_ATTEMPTS = 3 };
enum tune_state { TUNE_BOTH, TUNE_COLD, TUNE_HOT };

/* A result of --spec auto. */
struct tune_speculation {
    size_t N, batch;
    struct spec_plan plan;
};

/* State of a run. */
struct tune {
    const struct tune_options *options;
    struct tune_run run; /* template with batch 1; evictor set: cold measurements */
    struct evictor evictor;
    enum precision precision;
    struct model *model; /* from a file, or NULL */
    struct config config;
    const char *shape;          /* name in result rows */
    char key[72], knee_key[72]; /* profile entries: of the policy, of the batch knee */
    bool machine;               /* neither -m nor --shape is given */
    size_t N[TUNE_MAX_LIST], n_N, batch[TUNE_MAX_LIST], n_batch;
    struct profile profile;    /* results of this run */
    bool plan_spec;            /* --spec auto, */
    double rate;               /* with this acceptance rate; 0: of a file, or typical ones */
    struct model *draft;       /* NULL: drafting takes no time */
    double accept[TREE_RANKS]; /* acceptance rates of the first `ranks` draft tokens */
    size_t ranks;
    struct tune_speculation *speculation; /* [n_speculations] */
    size_t n_speculations;
    struct config_point *point; /* [n_points] */
    size_t n_points;
};

int tune_open(struct tune *tune, const struct tune_options *options, struct err *err) MUST_USE;
void tune_close(struct tune *tune);

/* Measures the rates that the points need and puts them into tune->profile. */
int tune_calibrate(struct tune *tune, struct err *err) MUST_USE;

/* Predicts and measures all configuration points. */
int tune_points(struct tune *tune, struct err *err) MUST_USE;

/* --spec auto: opens the draft model and acceptance rates, before measuring. */
int tune_spec_open(struct tune *tune, struct err *err) MUST_USE;

/* --spec auto: times passes of the models, and finds T and the shape of drafts for each context and
 * batch size. */
int tune_spec(struct tune *tune, struct err *err) MUST_USE;

/* A session with the run's settings; its cache policy is left out. */
struct session_options tune_session_options(const struct tune *tune, size_t batch, size_t context);

/* Measures the batch knee. */
int tune_knee(struct tune *tune, struct err *err) MUST_USE;

/* Warns of points where fit and measurement contradict each other; fails if one of them would be
 * written to the profile. */
int tune_warnings(const struct tune *tune, struct err *err) MUST_USE;

/* Checks before measuring that an existing profile can be read and has space for the results. */
int tune_check_room(const struct tune *tune, const char *path, struct err *err) MUST_USE;

/* Merges the results into the profile file. */
int tune_save(struct tune *tune, struct err *err) MUST_USE;

/* --check: 0 if the profile still suits this machine, 1 if not, -1 on errors. */
int tune_check(struct tune *tune, struct err *err) MUST_USE;

/* Prints the summary, or tables or rows in the format that is given. */
int tune_print(const struct tune *tune, struct err *err) MUST_USE;

/* Parts of what is printed: the summary, the machine, the batch knee of a model that has one, the policy of a model with its
 * reason. */
int tune_add_summary(const struct tune *tune, struct buf *text, struct err *err) MUST_USE;
int tune_add_machine(struct buf *text, const struct tune *tune, struct err *err) MUST_USE;
int tune_add_knee(struct buf *text, const struct tuned_model *model, struct err *err) MUST_USE;
int tune_add_policy(struct buf *text, const struct tuned_model *model, struct err *err) MUST_USE;

/* Prints the last line of summary and tables: what was written to the profile at `path`; NULL: nothing was. */
int tune_say_end(const struct tune *tune, const char *path, struct err *err) MUST_USE;

/* Writes the chart of --plot: predicted, measured and fitted times of a point over T. */
int tune_plot(const struct tune *tune, const struct config_point *point, struct err *err) MUST_USE;
