/* Runs bmc-prof's measurements: the attention block alone, whole forward passes, cache memory. */
#ifndef BMC_RUN_H
#define BMC_RUN_H

#include <signal.h>

#include "decode/snapshot.h"
#include "prof/counters.h"
#include "decode/comm_model.h"

/* What a measurement runs: `batch` prompts of n_prompt tokens at context depth `depth`, each continued by `beams`
 * beams of n_gen tokens, or divided among `ranks` processes. */
struct test {
    size_t batch, beams, n_prompt, n_gen, depth, ranks;
};

/* Configuration common to all compared runs. */
struct run {
    struct config config; /* model dimensions, with the number of layers to run */
    size_t N, batch;
    enum dtype kv_type;
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
    double ms[FORWARD_PHASES];
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
    /* 0: nothing ran: one layer of one prompt exceeds `most` of run_memory(), or `impossible` */
    size_t run_layers;
    size_t run_batch, run_bytes, arithmetic_bytes;
};

/* Predicts KV cache memory for the whole case, and how many prompts fit in `budget` bytes; then
 * fills a real cache with as much of the case as `most` bytes hold. */
int run_memory(const struct run *run, const struct kv_spec *spec, const struct test *what,
               size_t budget, size_t most, struct memory_result *result, struct err *err) MUST_USE;

#endif
