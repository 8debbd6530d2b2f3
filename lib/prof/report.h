/* Runs the measurements that bmc-prof compares and builds their result rows (JSON objects); every
 * row has all settings needed to repeat it. */
#ifndef BMC_REPORT_H
#define BMC_REPORT_H

#include "base/json.h"
#include "base/err.h"
#include "prof/roofline.h"
#include "prof/run.h"

/* Policies that could not be measured: a failure costs only the rows of its policy. */
struct failure {
    char policy[128]; /* option text, as the user gave it */
    struct err why;
    bool told; /* reported already */
};

struct failures {
    struct failure *list;
    size_t n, cap;
};

void failures_release(struct failures *failures);

/* Settings common to all measurements of a run, most of which every result row states. */
struct report {
    struct run run;
    const char *shape; /* name of a model shape, or path of the model */
    char model_id[65]; /* the model file's id; "" without a file */
    enum dtype weight_type;
    size_t weight_bytes, active_weight_bytes, expert_bytes; /* memory: struct weight_bytes */
    size_t embed_bytes; /* of weight_bytes, an untied input embedding, of which a run reads some rows */
    size_t program_bytes;         /* resident memory of a program before it runs anything */
    const char *version, *commit; /* program version; git commit, or NULL */
    char timestamp[32];           /* when the run began: UTC, ISO 8601 */
    int repeat, warmup;
    /* memory for the KV cache, which limits batch sizes of use cases; 0: no limit */
    size_t memory_bytes;
    struct failures *failures;                              /* output: policies that failed */
    void (*progress)(void *arg, size_t done, size_t total); /* called after each run; may be NULL */
    void *arg;
};

/* A cache policy to compare, with the option text that named it. */
struct contender {
    const char *text;
    struct kv_spec spec;
    size_t longest; /* maximum tokens of a sequence; 0: no limit */
};

/* If a policy cannot be measured, the functions below add a row whose field "error" says why,
 * record it in report->failures, and measure the other policies. */

/* Times the attention block (KV cache update and SDPA) alone under every cache policy, alternating
 * between policies; adds one row per policy with medians over the repeats. */
int report_blocks(const struct report *report, const struct contender *contender, size_t n,
                  json_t *rows, struct err *err) MUST_USE;

/* Time per token over all tokens decoded under a policy; NaN if it could not be measured. */
struct latency_all {
    double p50_ms, p95_ms;
};

struct latency_case {
    /* context depth of the first token, with synthetic KV entries; 0 with a snapshot */
    size_t depth;
    size_t every;            /* tokens per result row; 0: 1/32 of all */
    struct latency_all *all; /* output, one per policy; may be NULL */
};

/* Latency as a function of the token's position: adds a row for every what->every tokens with
 * median, 95th percentile and maximum time per token of each policy ("bmc:T=16_ms",
 * "bmc:T=16_p95_ms", "bmc:T=16_max_ms"). Decoding starts with one token at depth what->depth, or
 * from the first sequence of the snapshot, and continues until the context is full. */
int report_latency(const struct report *report, const struct model *model,
                   const struct contender *contender, size_t n, const struct latency_case *what,
                   json_t *rows, struct err *err) MUST_USE;

/* A test: prefill of n_prompt tokens (n_gen is 0) or decoding of n_gen, at context depth
 * `depth`. */
struct bench_test {
    size_t batch, n_prompt, n_gen, depth;
};

/* Measures all tests under all policies, alternating between them; adds one row per test and
 * policy. The machine's limit (memory bandwidth or peak arithmetic) that roof_share refers to is
 * measured before every run, with a memory block of `roof_bytes` bytes. */
int report_bench(const struct report *report, const struct model *model,
                 const struct contender *contender, size_t n_contenders, const struct bench_test *test,
                 size_t n_tests, size_t roof_bytes, json_t *rows, struct err *err) MUST_USE;

/* Measures prefill and decoding together under every policy; adds rows with generated tokens per
 * second, absolute and relative to the first paged policy (BMC paper, table II). */
int report_usecases(const struct report *report, const struct model *model,
                    const struct contender *contender, size_t n, const struct bench_test *test,
                    size_t n_tests, json_t *rows, struct err *err) MUST_USE;

/* KV cache memory: for every case, adds a row for each equation of the papers and for each policy,
 * with predicted bytes, and bytes counted by a real cache of at most `run_bytes`. `budget`: memory
 * for which the number of prompts that fit is reported; 0: none. */
int report_memory(const struct report *report, const struct contender *contender, size_t n,
                  const struct memory_case *what, size_t n_cases, size_t budget, size_t run_bytes,
                  json_t *rows, struct err *err) MUST_USE;

/* Hypothetical groups of hosts like this one, whose decode step times are predicted: every batch
 * size with every number of ranks. */
struct ranks_case {
    const char *network_text;
    struct network network;
    const size_t *batch, *ranks;
    size_t n_batches, n_ranks;
    size_t depth, n_gen; /* context depth, and number of measured steps */
};

/* Predicts decode step times of several hosts: for every batch size, adds a row for one process,
 * then one for each number of ranks and each form of parallelism that the model allows. */
int report_ranks(const struct report *report, const struct model *model, const struct kv_spec *spec,
                 const struct ranks_case *what, json_t *rows, struct err *err) MUST_USE;

/* Adds the row with the machine's measured peak rates (roofline). */
int report_roof(const struct report *report, const struct roof *roof, json_t *rows,
                struct err *err) MUST_USE;

#endif
