/* The one runner of bmc-prof: measures all combinations of tests and policies in turns, and makes a result row of
 * each, by the tables of prof_fields.c. */
#pragma once

#include <signal.h>

#include "decode/snapshot.h"
#include "model/convert/tensor_types.h"
#include "model/forward.h"
#include "prof/counters.h"
#include "report/fields.h"

/* What a measurement runs: `batch` prompts of n_prompt tokens at context depth `depth`, each continued by `beams`
 * beams of n_gen tokens, or divided among `ranks` processes. */
struct test {
    size_t batch, beams, n_prompt, n_gen, depth, ranks;
};

/* Configuration common to all compared runs. */
struct run {
    struct config config; /* model dimensions, with the number of layers to run */
    size_t N, batch;
    struct cache_types kv_types;
    struct cache_types_text kv_type; /* of kv_types */
    const struct backend *backend;   /* NULL: the CPU */
    const struct attn_backend *attn;
    const struct kernels *kernels;
    enum precision precision;
    int threads;
    uint64_t seed;
    const struct snapshot *snapshot; /* saved KV cache to decode from; NULL: start empty */
    struct counting *counting;       /* hardware events, opened before threads were created */
    const volatile sig_atomic_t *interrupted;
};

/* Options of a session of `batch` sequences of up to `context` tokens, the cache policy left out. */
struct session_options run_session_options(const struct run *run, size_t context, size_t batch);

/* ---- the attention block alone: cache update and SDPA (BMC paper, section IV) ---- */

struct block_result {
    double total_ms;
    double append_ms; /* total time of appending KV entries */
    /* time of SDPA: scores, softmax and weighted values */
    double sdpa_ms;
    double scores_ms, softmax_ms, values_ms; /* its phases; NaN: fused, not separable */
    struct attn_counts attn;
    struct counters counters;
    struct kv_stats kv; /* statistics of the cache, including alloc_ms and copy_ms */
};

/* ---- whole forward passes ---- */

struct steps_result {
    double prefill_ms;        /* prompt's forward passes, logits included */
    double prefill_growth_ms; /* part of prefill_ms: allocating and copying cache memory */
    /* [n_gen] wall time of each decode step, including cache growth and sampling; the caller frees it */
    double *step_ms;
    double growth_ms; /* part of decode_ms: allocating and copying cache memory */
    double sample_ms; /* choosing tokens: total over all decode steps */
    double decode_ms; /* sum of step_ms */
    struct pass_work prefill, decode;
    size_t T, r;
    enum kv_T_from T_from;
    double expert_runs; /* experts whose weights a decode step read, over all layers */
};

/* Number of KV entries that decoding from a snapshot's sequence starts with. The token after them
 * is the input of the first decode step. */
size_t run_snapshot_rows(const struct snapshot *snapshot, size_t index);

/* Times prefill of random prompts of n_prompt tokens at context depth `depth` (synthetic KV
 * entries, untimed), then n_gen steps of greedy decoding. With run->snapshot, which replaces depth
 * and prompt, both must be 0. */
int run_steps(const struct run *run, const struct model *model, const struct kv_spec *spec,
              size_t depth, size_t n_prompt, size_t n_gen, struct steps_result *result,
              struct err *err) MUST_USE;

/* ---- several ranks, predicted ---- */

/* A network between hosts by the alpha-beta model: a message takes a latency plus a time per byte. */
struct network {
    double latency_ms, byte_ms;
};

/* Parses "100Gb,2us": bits per second per direction, and latency between processes. */
int network_parse(struct network *network, const char *text, struct err *err) MUST_USE;

/* Times of the phases of a decode step in one process. */
struct step_cost {
    double attention_ms; /* attention with its projections */
    double mlp_ms, head_ms;
    double serial_ms; /* the rest, not divided among ranks */
    double experts;   /* different ones that a layer runs, on average */
};

/* Of `used` different experts of `experts`, which are distributed over the ranks, those of the rank with most,
 * on average over all choices. */
double ranks_most_experts(size_t experts, size_t ranks, size_t used);

enum { RANKS_MOST = 256 };

/* ---- memory of the cache ---- */

/* Memory of the KV cache: predicted for the whole case; and for the part of it that is run
 * (`run_layers` layers of `run_batch` prompts), as counted by a real cache and as predicted. */
struct memory_result {
    size_t T, r;
    size_t bytes;       /* predicted, for all prompts and answers in all layers */
    size_t peak;        /* the same, with what growth holds twice for a time */
    size_t activations; /* bytes of a session's buffers, logits included, KV cache and weights not */
    /* minimum bytes in memory for one prompt and its answers; 0: the policy cannot offload */
    size_t least;
    /* prompts that fit into `budget` and the policy's own limit; SIZE_MAX: no limit */
    size_t fits;
    bool impossible; /* a single prompt exceeds the policy's own limit */
    /* 0: nothing ran: one layer of one prompt exceeds `most` bytes, or `impossible` */
    size_t run_layers;
    size_t run_batch, run_bytes, arithmetic_bytes;
};

/* ---- the runner ---- */

enum { MAX_REPEAT = 64 };

/* Settings common to all measurements of a run, which every result row states. */
struct report {
    struct run run;
    const char *shape;            /* name of a model shape, or path of the model */
    char model_id[65];            /* the model file's id; "" without a file */
    struct tensor_types types;    /* of a shape's weights; of a file's: the type of most */
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

/* The figures of one round. A subcommand sets those that its table in prof_fields.c names; NaN, SIZE_MAX or a negative
 * count means that a figure does not apply. */
struct figures {
    const char *policy, *kind, *T_from, *parallelism, *network, *roof_kind;
    struct test test;
    size_t T, r;
    struct block_result block;
    double tok_s, tok_s_end_to_end, relative;
    double step_ms, compute_ms, network_ms, first_token_ms, sampling_ms, latency_ms[3],
        part_ms[FORWARD_PHASES];
    double roof_share, roof_gb_s, roof_gflop_s, step_bytes, experts_per_layer;
    double step_macs[WEIGHTS_CLASSES], attention_macs, conversion_ms, wait_ms;
    struct step_cost cost;
    size_t peak_resident_bytes, device_peak_bytes, sent_bytes, sent_calls;
    struct memory_result memory;
    double token_bytes, full_token_bytes, kv_bytes, over_standard, run_over;
    size_t peak_bytes;
    struct weight_bytes weights;
    size_t active_weight_bytes; /* of the weights, those that a step of one token reads */
    double *token_ms;           /* [n_tokens] time of each token; owned */
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
    size_t budget, run_bytes; /* limits: of prompts that are counted, and of the cache that is filled */
    struct weight_bytes weights;
    struct op_counts counts;
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
