/* The tuned profile, a text file: measured rates of a machine, and settings derived from them. */
#pragma once

#include "base/conf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "kernel/rates.h"
#include "kv/kv.h"
#include "tune/calibrate.h"
#include "tune/costmodel.h"
#include "tune/fit.h"
#include "tune/spec_plan.h"

/* Version of the file format, and limits. Version 1 stored one policy and batch knee for all
 * models; they are ignored. Up to version 2 the key batch_knee was free_rows. */
enum { PROFILE_VERSION = 3, PROFILE_MODELS = 1024, PROFILE_BYTES = 1 << 20 };

/* The machine and program settings that a profile is valid for. */
struct machine {
    char cpu[128];
    char isa[16], alloc[16];
    size_t cores, threads, page_size;
};

/* True if threads, instruction set and allocator are the same. */
bool machine_same_settings(const struct machine *a, const struct machine *b);

/* Describes this machine with a program's instruction set, allocator and threads; or the device of a backend, of which
 * none of these but the allocator matters. `backend` may be NULL: the CPU. */
void machine_of(struct machine *machine, const struct backend *backend, const char *isa,
                enum vm_alloc alloc, int threads);

/* The fastest measured T (number of cache allocations) of one configuration. */
struct tuned_T {
    char attn[16];
    enum dtype type;
    size_t width, group; /* D = heads * head_dim; G, GQA group size */
    size_t layers, batch, N;
    size_t T;
};

/* Tuning results for one model. */
struct tuned_model {
    char key[72];              /* model_id, 64 hexadecimal digits, or a shape's name; no blanks */
    char name[128];            /* display name */
    char policy[16];           /* fastest policy, "bmc" if none is clearly faster, "" if not measured */
    struct ratio policy_ratio; /* its time relative to bmc */
    struct batch_knee knee;    /* knee.n is 0 when it was not measured */
};

/* The fastest T and shape of drafts of a target with a drafter, for one cache type, attention
 * backend, batch size and context. */
struct tuned_spec {
    char target[72], draft[72]; /* model_ids; draft: "-" for drafters without a model */
    char attn[16];
    enum dtype type; /* of the KV cache */
    size_t batch, N, T;
    struct spec_shape shape;
    double tokens; /* expected per step */
};

/* Peak rates of an instruction set's kernels, as in struct kernel_rates. */
struct tuned_rate {
    char isa[16];
    double gop_s[PEAK_KINDS];
};

struct profile {
    struct machine machine;
    struct tuned_rate rate[RATES_MOST];
    size_t n_rates;
    /* of all threads: 10^9 bytes read, and operations at their peak, per second; 0: not measured */
    double read_gb_s, peak_gop_s[PEAK_KINDS];
    struct rate_curve *curve;
    size_t n_curves, curves_cap;
    struct tuned_T *tuned;
    size_t n_tuned, tuned_cap;
    struct tuned_spec *spec;
    size_t n_specs, specs_cap;
    struct tuned_model *model;
    size_t n_models, models_cap;
};

/* Parses untrusted text; after an error nothing is to be released. */
int profile_parse(struct profile *profile, const char *text, size_t size, const char *name,
                  struct err *err) MUST_USE;

/* Reads a file, not by mapping, since it may be replaced or truncated meanwhile. If it does not
 * exist, returns 0 and sets *found to false. */
int profile_open(struct profile *profile, const char *path, bool *found, struct err *err) MUST_USE;
int profile_write(const struct profile *profile, struct buf *text, struct err *err) MUST_USE;

/* Replaces the file atomically; a profile too large to be read again is an error. */
int profile_save(const struct profile *profile, const char *path, struct err *err) MUST_USE;
void profile_release(struct profile *profile);

/* Add a rate curve, a measured T or a shape of drafts, or replace the one for the same configuration. */
int profile_put_curve(struct profile *profile, const struct rate_curve *curve,
                      struct err *err) MUST_USE;
int profile_put_T(struct profile *profile, const struct tuned_T *tuned, struct err *err) MUST_USE;
int profile_put_spec(struct profile *profile, const struct tuned_spec *spec, struct err *err) MUST_USE;

/* The entry of the same models, attention, cache type and batch size as `like`, and the context
 * nearest to its N; NULL: none. */
const struct tuned_spec *profile_spec(const struct profile *profile, const struct tuned_spec *like);

/* Returns the entry of a model, added if needed; NULL: too many models, or out of memory. The
 * pointer is valid until the next model is added. */
struct tuned_model *profile_put_model(struct profile *profile, const char *key, struct err *err);
const struct tuned_model *profile_model(const struct profile *profile, const char *key);

/* Replaces the profile's peak rates by those of n kernel sets. */
void profile_put_rates(struct profile *profile, const struct kernel_rates *rates, size_t n);

/* The kernel set that is fastest by the profile's peak rates; NULL if the rates of a set that this
 * CPU supports are missing from the profile. */
const struct kernels *profile_kernels(const struct profile *profile);

/* Derives a model key from the name or path of a shape: its base name without ".shape", blanks and
 * control characters replaced. */
void profile_shape_key(char *key, size_t size, const char *shape);

/* Adds the entries of `newer`, replacing those for the same configurations. */
int profile_merge(struct profile *profile, const struct profile *newer, struct err *err) MUST_USE;

/* Fails if the profile is from a machine with another CPU, number of cores or page size. */
int profile_check_machine(const struct profile *profile, const struct machine *here,
                          struct err *err) MUST_USE;

/* A configuration whose cost or T is to be predicted. */
struct tune_query {
    const char *attn;
    enum dtype type;
    size_t heads, kv_heads, head_dim, layers, batch, N;
    size_t v_dim; /* as in struct kv_shape */
    size_t k, m;
    bool hot; /* CPU caches stay warm between steps; false: reading weights evicts them */
};

/* The query for one layer of a benchmark's configuration. */
struct tune_query tune_query_of(const struct tune_run *run, size_t batch, size_t N);

/* Sets up the cost model in *cell with the closest rate curves; false: the profile has none. */
bool profile_cost_config(const struct profile *profile, const struct tune_query *query,
                         struct cost_config *cell);

/* The T for a query: a measured one, else computed from the profile's rates; *from says which. 0:
 * the profile has neither. */
size_t profile_T(const struct profile *profile, const struct tune_query *query, enum kv_T_from *from);

/* ---- T for newly opened caches: kv_spec.tuner ---- */

/* Chooses T, from a borrowed profile, for every cache opened with this tuner. */
struct profile_tuner {
    struct kv_tuner tuner;
    const struct tuned_spec *spec; /* with speculation; may be NULL */
    const struct profile *profile;
    const char *attn;
    size_t heads; /* query heads, H */
};

struct profile_tuner profile_tuner(const struct profile *profile, const char *attn, size_t heads);

/* ---- a profile and the model's entry in it ---- */

struct tuned {
    struct profile profile;
    bool found;                      /* exists, and matches machine and configuration */
    char target[2 * HASH_BYTES + 1]; /* id of the model in use; model: its entry, or NULL */
    const struct tuned_model *model;
    struct profile_tuner tuner;
};

/* Reads a profile; *tuned is to be closed also on error. Not found: there is no such file (*exists says so), or
 * it was made with another instruction set, allocator or number of threads. */
int tuned_read(struct tuned *tuned, const char *path, const struct machine *here, bool *exists,
               struct err *err) MUST_USE;
void tuned_close(struct tuned *tuned);

/* Selects the entry of a model by its model_id. */
void tuned_select(struct tuned *tuned, const struct hash *model_id);

/* The tuner for kv_spec.tuner; NULL: no profile. */
const struct kv_tuner *tuned_for(struct tuned *tuned, const char *attn, size_t heads);

/* Default of --kv: the fastest policy measured with this model; NULL: unknown. */
const char *tuned_policy(const struct tuned *tuned);

/* T and the shape of drafts found for the model with a draft model (NULL: another drafter), for the
 * attention, cache type, batch size and context of `like`; NULL: unknown. */
const struct tuned_spec *tuned_speculation(const struct tuned *tuned, const struct hash *draft_id,
                                           struct tuned_spec like);

/* Makes the tuner of tuned_for() give this T. */
void tuned_use_speculation(struct tuned *tuned, const struct tuned_spec *spec);

/* This model's batch knee: tokens per step at no extra latency; 0: unknown. */
size_t tuned_batch_knee(const struct tuned *tuned);
