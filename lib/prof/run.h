/* Measurements: the attention block alone, whole forward passes, and cache memory. */
#ifndef BMC_RUN_H
#define BMC_RUN_H

#include <signal.h>

#include "decode/snapshot.h"
#include "prof/counters.h"
#include "prof/network.h"

/* Configuration common to all compared runs. */
struct run {
    struct config config; /* its number of layers is the number that run */
    size_t N, batch;
    enum dtype kv_type;
    const struct attn_backend *attn;
    const struct kernels *kernels;
    enum precision precision;
    int threads;
    uint64_t seed;
    const struct snapshot *snapshot; /* where whole steps resume; NULL: from an empty cache */
    struct counting *counting;       /* hardware events, opened before threads were created */
    const volatile sig_atomic_t *interrupted;
};

/* ---- the attention block alone: cache update and SDPA (BMC paper, section IV) ---- */

struct block_result {
    double total_ms;
    double append_ms; /* total time of appending KV entries */
    /* scores, softmax and values together */
    double sdpa_ms;
    double scores_ms, softmax_ms, values_ms; /* negative: fused, not separable */
    struct counters counters;
    struct kv_stats kv; /* statistics of the cache, including alloc_ms and copy_ms */
    size_t T, r;
    enum kv_T_from T_from;
};

/* Decodes a batch of sequences from an empty cache to N tokens, one token per step, with random
 * queries, keys and values. */
int run_block(const struct run *run, const struct kv_spec *spec, struct block_result *result,
              struct err *err) MUST_USE;

/* ---- whole forward passes ---- */

struct steps_result {
    double prefill_ms;        /* prompt's forward passes, logits included */
    double prefill_growth_ms; /* part of prefill_ms: allocating and copying cache memory */
    /* [n_gen] wall time of each decode step, including cache growth and sampling */
    double *step_ms;
    double *growth_ms; /* [n_gen] part of step_ms: allocating and copying cache memory */
    double sample_ms;  /* total over all decode steps */
    double decode_ms;  /* sum of step_ms */
    double ms[FORWARD_PHASES];
    struct counters counters; /* events during the decode steps */
    struct kv_stats kv;
    size_t T, r;
    enum kv_T_from T_from;
};

/* Tokens of a resumed snapshot's sequence, including the last one, which has no KV entry yet. */
size_t run_snapshot_rows(const struct snapshot *snapshot, size_t index);

/* Times prefill of random prompts of n_prompt tokens at context depth `depth` (synthetic KV
 * entries, untimed), then n_gen steps of greedy decoding. With run->snapshot, which replaces depth
 * and prompt, both must be 0. */
int run_steps(const struct run *run, const struct model *model, const struct kv_spec *spec,
              size_t depth, size_t n_prompt, size_t n_gen, struct steps_result *result,
              struct err *err) MUST_USE;
void steps_result_release(struct steps_result *result);

/* ---- several ranks, predicted ---- */

/* Times of the phases of a decode step in one process. */
struct step_cost {
    double attention_ms; /* with its projections */
    double mlp_ms, head_ms;
    double serial_ms; /* not divided among ranks */
};

/* Measures decode steps of the run's batch at context depth `depth`; medians over n_gen steps. */
int run_step_cost(const struct run *run, const struct model *model, const struct kv_spec *spec,
                  size_t depth, size_t n_gen, struct step_cost *cost, struct err *err) MUST_USE;

enum ranks_parallelism { RANKS_NONE, RANKS_TENSOR, RANKS_PIPELINE, RANKS_DATA, RANKS_PARALLELISMS };

enum { RANKS_MOST = 256 };

/* A batch shared by a number of hosts (at most RANKS_MOST) like this one. */
struct ranks_way {
    enum ranks_parallelism parallelism;
    size_t ranks, batch;
};

struct ranks_step {
    double compute_ms, network_ms; /* time of a step that adds one token to every sequence */
    size_t sent_bytes, sent_calls; /* per step, summed over all ranks */
};

/* Number of sequences in each forward pass of a rank; 0: the model cannot be divided that way. */
size_t ranks_rows(const struct model *model, const struct ranks_way *way);

/* Predicts a step; `cost` is the measured cost for ranks_rows() sequences. */
struct ranks_step ranks_expect(const struct model *model, const struct ranks_way *way,
                               const struct step_cost *cost, const struct network *network);

/* ---- memory of the cache ---- */

/* `batch` prompts of `prompt` tokens, each continued by `beams` beams of `answer` tokens. */
struct memory_case {
    size_t batch, beams, prompt, answer;
};

/* Predicted bytes for the whole case, and for the part that fits in memory (`run_layers` layers of
 * `run_batch` prompts) bytes counted by a real cache and predicted. */
struct memory_result {
    size_t T, r;
    size_t bytes; /* predicted, for all prompts and answers in all layers */
    /* minimum resident bytes of one prompt and its answers; 0: the policy cannot offload */
    size_t least;
    /* prompts that fit into `budget` and the policy's own limit; SIZE_MAX: no limit */
    size_t fits;
    bool impossible; /* a single prompt exceeds the policy's own limit */
    /* 0: nothing ran, as one layer of one prompt exceeds `most`, or `impossible` is set */
    size_t run_layers;
    size_t run_batch, run_bytes, arithmetic_bytes;
};

/* Predicts memory for the whole case, then fills a cache with as much of it as `most` bytes
 * hold. */
int run_memory(const struct run *run, const struct kv_spec *spec, const struct memory_case *what,
               size_t budget, size_t most, struct memory_result *result, struct err *err) MUST_USE;

#endif
