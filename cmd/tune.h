/* The parts of bmc-tune: options, the jobs, printing. */
#ifndef BMC_TUNE_H
#define BMC_TUNE_H

#include "base/table.h"
#include "opt.h"
#include "tune/tunerows.h"

struct tune_options {
    const char *model, *shape;
    const char *context, *batch, *spec;
    size_t layers;
    int type, kv_type, alloc, state;
    const char *attn, *isa, *precision, *profile, *constants;
    size_t threads, rounds, seconds, megabytes, evict;
    int64_t seed;
    bool exact, no_sweep, no_rows, dry_run, force, check, quiet;
    int format;
    const char *plot;
};

extern const struct program tune_program;

enum { TUNE_MAX_LIST = 16, TUNE_MAX_CELLS = 2 * TUNE_MAX_LIST * TUNE_MAX_LIST };
#define TUNE_ROWS_SHAPE                                                                                \
    "tinyllama-1.1b" /* whose steps are timed where it is the machine that is asked about */
enum tune_state { TUNE_BOTH, TUNE_COLD, TUNE_HOT };

/* What a run works on. */
struct tune {
    const struct tune_options *options;
    struct tune_run run; /* its batch is 1; its sweeper is set while something cold is measured */
    struct sweeper sweeper;
    enum precision precision;
    struct model *model; /* a file, or NULL */
    struct config config;
    const char *shape;          /* what rows call it */
    char key[72], rows_key[72]; /* of the profile's entries: policy; free rows */
    bool machine;               /* neither -m nor --shape: it is the machine that is asked about */
    size_t N[TUNE_MAX_LIST], n_N, batch[TUNE_MAX_LIST], n_batch;
    struct profile profile; /* what has been found out */
    struct cell *cell;      /* [n_cells] */
    size_t n_cells;
};

int tune_open(struct tune *tune, const struct tune_options *options, struct err *err) MUST_USE;
void tune_close(struct tune *tune);

/* Measures the constants that the cells need, into the profile. */
int tune_calibrate(struct tune *tune, struct err *err) MUST_USE;

/* Predicts, and measures, every cell. */
int tune_cells(struct tune *tune, struct err *err) MUST_USE;

/* Times model steps of 1 to 64 rows. */
int tune_rows(struct tune *tune, struct err *err) MUST_USE;

/* Warns of cells whose fit and raw ratio disagree; an error when there is one that something would be written from. */
int tune_doubts(const struct tune *tune, struct err *err) MUST_USE;

/* Before anything is measured: the profile file that is there, if any, can be read, and has room for what will be found. */
int tune_check_room(const struct tune *tune, const char *path, struct err *err) MUST_USE;

/* Puts what was found into the profile file, beside what is there of other models. */
int tune_save(struct tune *tune, struct err *err) MUST_USE;

/* --check: 0 fits, 1 does not, -1 failed. */
int tune_check(struct tune *tune, struct err *err) MUST_USE;

int tune_print(const struct tune *tune, struct err *err) MUST_USE;

/* Predicted, measured and fitted times of a cell over T, as SVG, where --plot says. */
int tune_plot(const struct tune *tune, const struct cell *cell, struct err *err) MUST_USE;

#endif
