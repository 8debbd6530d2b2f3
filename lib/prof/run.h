/* What is measured, and two ways to run it: the attention block alone, and whole model steps. */
#ifndef BMC_RUN_H
#define BMC_RUN_H

#include <signal.h>

#include "decode/snapshot.h"
#include "prof/counters.h"
#include "prof/network.h"

/* The same for all runs that are compared. */
struct run {
    struct config config; /* with as many layers as are run */
    size_t N, batch;
    enum dtype kv_type;
    const struct attn_backend *attn;
    const struct kernels *kernels;
    enum precision precision;
    int threads;
    uint64_t seed;
    const struct snapshot
        *snapshot;             /* where whole steps begin in place of an empty cache; NULL: none */
    struct counting *counting; /* open since before the team's threads were made */
    const volatile sig_atomic_t *interrupted;
};

/* ---- the attention block: cache update and SDPA, as the BMC paper, IV, measures them ---- */

struct block_result {
    double total_ms;
    double append_ms;                        /* new rows into place */
    double sdpa_ms;                          /* scores, softmax, values: the next three are its parts */
    double scores_ms, softmax_ms, values_ms; /* negative: the backend does them in one */
    struct counters counters;
    struct kv_stats kv; /* alloc_ms and copy_ms among them */
    size_t T, r;
    enum kv_T_from T_from;
};

/* A batch of sequences grows from empty to N rows, one row a step, with random queries, keys and values. */
int run_block(const struct run *run, const struct kv_spec *spec, struct block_result *result,
              struct err *err) MUST_USE;

/* ---- whole steps ---- */

struct steps_result {
    double prefill_ms;        /* of the prompt, with its logits */
    double prefill_growth_ms; /* of it, allocation and copying */
    double *step_ms;          /* [n_gen] wall time of each decode step, growth and sampling included */
    double *growth_ms;        /* [n_gen] of it, allocation and copying */
    double sample_ms;         /* of all steps */
    double decode_ms;         /* sum of step_ms */
    double ms[FORWARD_PARTS];
    struct counters counters; /* of the decode steps */
    struct kv_stats kv;
    size_t T, r;
    enum kv_T_from T_from;
};

/* Rows that a sequence begins with, and its last token, when it goes on from a sequence of the snapshot. */
size_t run_snapshot_rows(const struct snapshot *snapshot, size_t index);

/* A batch of random prompts of n_prompt tokens after `depth` rows that are written, untimed and not computed, then n_gen
 * steps of greedy decoding. With a snapshot its sequences stand for depth and prompt, which must be 0. */
int run_steps(const struct run *run, const struct model *model, const struct kv_spec *spec,
              size_t depth, size_t n_prompt, size_t n_gen, struct steps_result *result,
              struct err *err) MUST_USE;
void steps_result_release(struct steps_result *result);

/* ---- several ranks, by arithmetic ---- */

/* What the parts of a decode step of one process take. */
struct step_cost {
    double attention_ms; /* and its products */
    double mlp_ms, head_ms;
    double serial_ms; /* what every rank does, or rank 0 alone */
};

/* Measures a step of the run's batch, behind `depth` rows; medians of n_gen steps. */
int run_step_cost(const struct run *run, const struct model *model, const struct kv_spec *spec,
                  size_t depth, size_t n_gen, struct step_cost *cost, struct err *err) MUST_USE;

double step_cost_ms(const struct step_cost *cost);

enum ranks_split { RANKS_NONE, RANKS_TENSOR, RANKS_LAYERS, RANKS_REQUESTS, RANKS_SPLITS };

enum { RANKS_MOST = 256 };

/* So many hosts like this one, RANKS_MOST at most, share a batch. */
struct ranks_way {
    enum ranks_split split;
    size_t ranks, batch;
};

struct ranks_step {
    double compute_ms, network_ms; /* of a step, which gives each sequence a token */
    size_t sent_bytes, sent_calls; /* in it, of all ranks */
};

/* Sequences that one of them computes at a time; 0: the model cannot be split so. */
size_t ranks_rows(const struct model *model, const struct ranks_way *way);

/* The step that is to be expected; `cost` is of ranks_rows() sequences. */
struct ranks_step ranks_expect(const struct model *model, const struct ranks_way *way,
                               const struct step_cost *cost, const struct network *network);

/* ---- the cache alone: what it holds ---- */

/* Prompts that so many texts each go on from. */
struct memory_case {
    size_t batch, beams, prompt, answer;
};

/* One that was really grown, in `run_layers` of the layers and for `run_batch` of the prompts: what the cache counts, beside
 * what its policy's arithmetic says of as much. */
struct memory_result {
    size_t T, r;
    size_t bytes; /* by arithmetic, of all prompts and their answers, in all layers */
    size_t
        least; /* of one prompt and its answers, that must be in memory; 0: all, or the policy has no limit */
    size_t fits;     /* prompts that `budget` holds, and the policy's own limit; SIZE_MAX: any number */
    bool impossible; /* not even one, since the policy's own limit is too low */
    size_t run_layers; /* 0: not even one layer of one prompt is within `most`, or it is impossible */
    size_t run_batch, run_bytes, arithmetic_bytes;
};

/* Grows as much of it as takes no more than `most` bytes. */
int run_memory(const struct run *run, const struct kv_spec *spec, const struct memory_case *what,
               size_t budget, size_t most, struct memory_result *result, struct err *err) MUST_USE;

#endif
