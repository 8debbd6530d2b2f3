/* The tuned profile: what bmc-tune has found out about a machine, as readable text; and which T it gives. */
#ifndef BMC_PROFILE_H
#define BMC_PROFILE_H

#include "base/conf.h"
#include "base/mem.h"
#include "kernel/rates.h"
#include "kv/kv.h"
#include "tune/calibrate.h"
#include "tune/costmodel.h"
#include "tune/fit.h"

/* Version 1 had a policy and free rows of no particular model: its constants and T are taken, the rest is not. */
enum { PROFILE_VERSION = 2, PROFILE_MODELS = 1024, PROFILE_BYTES = 1 << 20 };

/* What a profile is true of. */
struct machine {
    char cpu[128];
    char isa[16], alloc[16];
    size_t cores, threads, page_size;
};

/* This machine, with a program's instruction set, allocator and threads. */
void machine_of(struct machine *machine, const char *isa, enum pages_alloc alloc, int threads);

/* A T that was found for exactly this. */
struct tuned_T {
    char attn[16];
    enum dtype type;
    size_t width, group; /* D, G */
    size_t layers, batch, N;
    size_t T;
};

/* What is true of one model alone. */
struct tuned_model {
    char key[72];              /* model_id, 64 hexadecimal digits, or a shape's name; no blanks */
    char name[128];            /* what people call it */
    char policy[16];           /* clearly the fastest, or "bmc"; "" when that was not measured */
    struct ratio policy_ratio; /* its time divided by bmc's */
    struct free_rows rows;     /* n is 0 when they were not measured */
};

/* Throughput of a kernel set's instructions, as in struct kernel_rates. */
struct tuned_rate {
    char isa[16];
    double gop_s[PEAK_KINDS];
};

struct profile {
    struct machine machine;
    struct tuned_rate rate[RATES_MOST];
    size_t n_rates;
    struct curve *curve;
    size_t n_curves, curves_cap;
    struct tuned_T *tuned;
    size_t n_tuned, tuned_cap;
    struct tuned_model *model;
    size_t n_models, models_cap;
};

/* Reads `size` bytes of text, which may be anything. On error nothing is left to release. */
int profile_parse(struct profile *profile, const char *text, size_t size, const char *name,
                  struct err *err) MUST_USE;

/* Reads a file, by read() and not by a mapping: it may be replaced or cut meanwhile. *found is false, and nothing an
 * error, when there is no such file. */
int profile_open(struct profile *profile, const char *path, bool *found, struct err *err) MUST_USE;
int profile_write(const struct profile *profile, struct buf *text, struct err *err) MUST_USE;

/* Replaces the file in one step; what could not be read again is an error. */
int profile_save(const struct profile *profile, const char *path, struct err *err) MUST_USE;
void profile_release(struct profile *profile);

/* Adds, or takes the place of what stands there for the same thing. */
int profile_put_curve(struct profile *profile, const struct curve *curve, struct err *err) MUST_USE;
int profile_put_T(struct profile *profile, const struct tuned_T *tuned, struct err *err) MUST_USE;

/* The entry of a model, made where there is none; NULL when there are too many or memory is short. Good until the next one is made. */
struct tuned_model *profile_put_model(struct profile *profile, const char *key, struct err *err);
const struct tuned_model *profile_model(const struct profile *profile, const char *key);

/* Replaces the throughputs by measured ones. */
void profile_put_rates(struct profile *profile, const struct kernel_rates *rates, size_t n);

/* The default kernel set by the throughputs of the profile; NULL when it lacks those of a set that this machine can run. */
const struct kernels *profile_kernels(const struct profile *profile);

/* A key from a shape's name or path: the file's name without ".shape", blanks and control characters replaced. */
void profile_shape_key(char *key, size_t size, const char *shape);

/* Takes over what `newer` found out: throughputs, constants, T, and of models the policy and the free rows that it has. */
int profile_merge(struct profile *profile, const struct profile *newer, struct err *err) MUST_USE;

/* -1 with a sentence when the profile is of another machine: its processor, cores or page size differ. */
int profile_check_machine(const struct profile *profile, const struct machine *here,
                          struct err *err) MUST_USE;

/* What costs are asked about: a cell, but for the curves. */
struct tune_question {
    const char *attn;
    enum dtype type;
    size_t heads, kv_heads, head_dim, layers, batch, N;
    size_t k, m;
    bool hot; /* nothing sweeps the caches between steps; a model's weights do */
};

/* The cost cell of the question, with the curves that fit best; false where the profile has none. */
bool profile_cell(const struct profile *profile, const struct tune_question *question,
                  struct cost_cell *cell);

/* The T for a question: from the table, else from the formula and the profile's constants; 0 when the profile can tell
 * nothing. */
size_t profile_T(const struct profile *profile, const struct tune_question *question,
                 enum kv_T_from *from);

/* ---- for caches: kv_spec.tuner ---- */

/* Picks T for every cache that is opened with it. The profile stays the caller's. */
struct profile_tuner {
    struct kv_tuner tuner;
    const struct profile *profile;
    const char *attn;
    size_t heads; /* H */
};

struct profile_tuner profile_tuner(const struct profile *profile, const char *attn, size_t heads);

#endif
