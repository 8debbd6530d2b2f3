/* The one runner of bmc-prof: measures all combinations of tests and policies in turns, and makes a result row of
 * each, by the tables of fields.c. */
#ifndef BMC_REPORT_H
#define BMC_REPORT_H

#include "report/fields.h"
#include "prof/run.h"

enum { MAX_REPEAT = 64 };

/* Settings common to all measurements of a run, which every result row states. */
struct report {
    struct run run;
    const char *shape; /* name of a model shape, or path of the model */
    char model_id[65]; /* the model file's id; "" without a file */
    enum dtype weight_type;
    const char *version, *commit; /* program version; git commit, or NULL */
    char timestamp[32];           /* when the run began: UTC, ISO 8601 */
    int repeat, warmup;
    void (*progress)(void *arg, size_t done, size_t total); /* called after each run */
    void *arg;
};

/* A cache policy to compare, with the option text that named it. */
struct contender {
    const char *text;
    struct kv_spec spec;
    size_t longest; /* maximum tokens of a sequence; 0: no limit */
    /* memory: KV entries by an equation, which has no policy; else NULL */
    double (*equation)(const struct run *run, const struct test *test);
};

/* The figures of one round. A subcommand sets those that its table in fields.c names; NaN, SIZE_MAX or a negative
 * count means that a figure does not apply. */
struct figures {
    const char *policy, *kind, *T_from, *parallelism, *network, *roof_kind;
    struct test test;
    size_t rank_threads, T, r;
    struct block_result block;
    double tok_s, tok_s_end_to_end, relative;
    double step_ms, compute_ms, network_ms, first_token_ms, sampling_ms, latency_ms[3],
        part_ms[FORWARD_PHASES];
    double roof_share, roof_gb_s, roof_gflop_s, step_bytes, experts_per_layer;
    struct step_cost cost;
    size_t peak_resident_bytes, sent_bytes, sent_calls;
    double pss_bytes;
    struct memory_result memory;
    double token_bytes, full_token_bytes, kv_bytes, over_standard, run_over;
    size_t peak_bytes;
    struct weight_bytes weights;
    double *token_ms; /* [n_tokens] time of each token; owned */
    size_t n_tokens;
};

/* A test under a policy, with its figures in each round. */
struct measurement {
    const struct contender *contender;
    struct test test;
    size_t N, tokens;      /* context of a sequence, and how many tokens it gets */
    struct figures *round; /* [repeat] */
    struct err why;        /* why it could not be measured; "" if it could */
};

struct measurements {
    struct measurement *list;
    size_t n;
};

/* Lists all tests under all policies. Released also after an error. */
int measurements_open(struct measurements *all, const struct report *report,
                      const struct contender *contender, size_t n_contenders, const struct test *test,
                      size_t n_tests, struct err *err) MUST_USE;
void measurements_release(struct measurements *all, const struct report *report);

typedef int measure_one(void *arg, const struct measurement *m, struct figures *figures,
                        struct err *err);

/* Measures everything once in each round, so that slow drift of the machine affects all alike; warm-up rounds do not
 * count. A measurement that fails only loses its own figures; an interruption ends all. */
int measure_all(struct measurements *all, const struct report *report, measure_one *one, void *arg,
                struct err *err) MUST_USE;

/* Sets `relative`, the median of tok_s_end_to_end relative to that of the first measurement in each group of `group`
 * whose policy begins with `base`, and was measured unless `base` is ""; NaN: there is none. */
void measurements_relate(const struct measurements *all, const struct report *report, size_t group,
                         const char *base);

/* The subcommands' result rows: their own fields, then those that all rows share. */
struct row_kind {
    const struct row_field *fields;
    /* 0: rows have none of setup_fields; FIELD_MACHINE: those of the machine; FIELD_ALL: all */
    unsigned setup;
    bool cache, samples, error;
};

extern const struct row_field setup_fields[], cache_fields[];

/* Adds the settings that rows of this kind state. `attends` is the value of "attended". */
int report_setup(const struct report *report, const struct row_kind *kind, const struct kv_spec *spec,
                 const char *attends, size_t N, json_t *row, struct err *err) MUST_USE;

/* Adds a measurement's row; of a failed one only what was to be measured, and the error. */
int report_measurement(const struct report *report, const struct row_kind *kind,
                       const struct measurement *m, json_t *rows, struct err *err) MUST_USE;
int report_measurements(const struct report *report, const struct row_kind *kind,
                        const struct measurements *all, json_t *rows, struct err *err) MUST_USE;

/* ---- measurements ---- */

/* The attention block (KV cache update and SDPA) alone. `arg`: struct report. */
measure_one measure_block;

struct bench_job {
    const struct report *report;
    const struct model *model;
    struct roof_block *block; /* for the machine's limit, measured before every run */
};

/* Prefill, or decoding, at a context depth. */
measure_one measure_bench;

/* Sets latency_ms of the last round: percentiles over the tokens of all rounds; NaN: there are none. */
int bench_percentiles(const struct measurements *all, const struct report *report,
                      struct err *err) MUST_USE;

/* Prefill and decoding together (BMC paper, table II). */
measure_one measure_usecase;

/* Sets batch sizes to as many sequences as fit in `bytes` of KV cache. */
int usecases_fit(struct measurements *all, const struct report *report, size_t bytes,
                 struct err *err) MUST_USE;

/* Latency as a function of the token's position: each token of a decode, from one token at the test's depth, or from
 * the snapshot, until the context is full. */
measure_one measure_latency;

/* Adds a row for every `every` tokens (0: 1/32 of all), with median, 95th percentile and maximum of each policy:
 * "bmc:T=16_ms", "bmc:T=16_p95_ms", "bmc:T=16_max_ms". */
int report_latency(const struct report *report, const struct row_kind *kind,
                   const struct measurements *m, size_t every, json_t *rows, struct err *err) MUST_USE;

/* The equations of KV cache memory in the papers, as contenders: their number, up to MEMORY_EQUATIONS. */
enum { MEMORY_EQUATIONS = 4 };
void memory_equations(struct contender contender[MEMORY_EQUATIONS], const struct kv_spec *any);

struct memory_job {
    const struct report *report;
    size_t budget, run_bytes; /* as of run_memory() */
    struct weight_bytes weights;
    size_t embed_bytes; /* of the weights, an untied input embedding, of which a run reads some rows */
    size_t program_bytes; /* resident memory of a program before it runs anything */
};

/* KV cache memory, predicted, and as counted by a real cache. */
measure_one measure_memory;

/* Hypothetical groups of hosts like this one: every batch size with every number of ranks. */
struct ranks_case {
    const char *network_text;
    struct network network;
    const size_t *batch, *ranks;
    size_t n_batches, n_ranks;
    size_t depth, n_gen; /* context depth, and number of measured steps */
};

/* Predicts decode step times of several hosts: for every batch size, adds a row for one process,
 * then one for each number of ranks and each form of parallelism that the model allows. */
int report_ranks(const struct report *report, const struct row_kind *kind, const struct model *model,
                 const struct contender *contender, const struct ranks_case *what, json_t *rows,
                 struct err *err) MUST_USE;

#endif
