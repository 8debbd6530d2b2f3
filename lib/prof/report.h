/* Runs that are compared, and their rows: every row carries what is needed to repeat it. */
#ifndef BMC_REPORT_H
#define BMC_REPORT_H

#include "base/json.h"
#include "prof/failures.h"
#include "prof/roof.h"
#include "prof/run.h"

/* What the rows say beside their measurements. */
struct report {
    struct run run;
    const char *shape; /* of a shape file, or the model's path */
    char model_id[65]; /* of a model file, or "" */
    enum dtype weight_type;
    const char *version, *commit; /* of the program; commit: NULL for a build outside git */
    char timestamp[32];           /* when the run began: UTC, ISO 8601 */
    int repeat, warmup;
    size_t
        memory_bytes; /* for the cache: the use cases' batches are as large as that holds; 0: as they are given */
    struct failures *failures;                              /* filled */
    void (*progress)(void *arg, size_t done, size_t total); /* runs; may be NULL */
    void *arg;
};

/* Policies to compare, with the text that named each. */
struct contender {
    const char *text;
    struct kv_spec spec;
    size_t longest; /* tokens that a sequence can have under it; 0: any number */
};

/* A contender that cannot be measured leaves a row with the reason as its member "error", is noted in report->failures,
 * and ends nothing. */

/* The attention block under every contender, in turns: one row each, medians of the repeats. */
int report_blocks(const struct report *report, const struct contender *contender, size_t n,
                  json_t *rows, struct err *err) MUST_USE;

/* Of all tokens of a contender; NaN where it could not be measured. */
struct latency_all {
    double p50_ms, p95_ms;
};

struct latency_case {
    size_t depth; /* rows before the first token, written and not computed; 0 with a snapshot */
    size_t every; /* tokens that share a row; 0: a part in 32 of them */
    struct latency_all *all; /* [contenders], filled; may be NULL */
};

/* Latency of the n-th token: a row for every `every` tokens, with columns of medians, 95th percentiles and slowest tokens
 * for each contender ("bmc:T=16_ms", "bmc:T=16_p95_ms", "bmc:T=16_max_ms"). Decoding begins with one token behind `depth` rows, or with
 * the first sequence of the snapshot, and fills the context. */
int report_latency(const struct report *report, const struct model *model,
                   const struct contender *contender, size_t n, const struct latency_case *what,
                   json_t *rows, struct err *err) MUST_USE;

/* One test of the bench: a prompt of n_prompt tokens (n_gen 0), or n_gen tokens, after `depth` rows. */
struct bench_test {
    size_t batch, n_prompt, n_gen, depth;
};

/* One row per test and contender, all in turns; the limit that roof_share is of is measured beside every run, with
 * blocks of `roof_bytes`. */
int report_bench(const struct report *report, const struct model *model,
                 const struct contender *contender, size_t n_contenders, const struct bench_test *test,
                 size_t n_tests, size_t roof_bytes, json_t *rows, struct err *err) MUST_USE;

/* Prompt and generation together under every contender: generated tokens per second of the whole, and the same
 * divided by the first contender's that is called paged (BMC paper, table II). */
int report_usecases(const struct report *report, const struct model *model,
                    const struct contender *contender, size_t n, const struct bench_test *test,
                    size_t n_tests, json_t *rows, struct err *err) MUST_USE;

/* For every case a row for each equation of the papers and for each contender: bytes by arithmetic, and what a cache of at
 * most `run_bytes` counts. `budget`: for how many prompts that is enough; 0: not asked. */
int report_memory(const struct report *report, const struct contender *contender, size_t n,
                  const struct memory_case *what, size_t n_cases, size_t budget, size_t run_bytes,
                  json_t *rows, struct err *err) MUST_USE;

/* Hosts that are to be thought of. */
struct ranks_case {
    const char *network_text;
    struct network network;
    const size_t *batch, *ranks;
    size_t n_batches, n_ranks;
    size_t depth, n_gen; /* rows before the steps that are measured, and how many these are */
};

/* For every batch a row of one process, then of each number of ranks and each split that the model can have: the step to be
 * expected. */
int report_ranks(const struct report *report, const struct model *model, const struct kv_spec *spec,
                 const struct ranks_case *what, json_t *rows, struct err *err) MUST_USE;

/* The only row of `roof`. */
int report_roof(const struct report *report, const struct roof *roof, json_t *rows,
                struct err *err) MUST_USE;

#endif
