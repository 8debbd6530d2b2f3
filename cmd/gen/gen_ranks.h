/* Ranks: the processes of a run started by mpirun. Rank 0 reads input and writes results; the
 * others print only errors, prefixed with their name. */
#pragma once

#include "gen/gen.h"

/* Call before parsing options: mutes errors of ranks other than 0, since rank 0 prints the same.
 * Ranks with wrong variables or an unknown number of ranks are not muted. */
void ranks_mute_errors(void);

/* "rank 3 on HOST" */
struct rank_name {
    char text[96];
};
struct rank_name rank_name(void);

/* Opens gen->ranks under a launcher or with --parallelism, and sets gen->parallelism. Clears output
 * options on ranks other than 0. */
int gen_open_ranks(struct gen *gen, struct gen_options *options, struct err *err) MUST_USE;

/* Before and after the model is opened: rank 0 opens it first, so that it converts a GGUF file or folder, and other ranks
 * of its machine find the model in the cache. */
int gen_await_rank_0(struct gen *gen, struct err *err) MUST_USE;
int gen_let_ranks_open(struct gen *gen, struct err *err) MUST_USE;

/* Checks that all ranks have the same version, options and open models; distributes rank 0's seed. */
int gen_agree(struct gen *gen, struct err *err) MUST_USE;

/* Called after the job, whose result is `rc`: ranks that succeeded wait for each other. A rank that
 * failed prints its error and ends the run; on rank 0 this function then does not return. */
void gen_close_ranks(struct gen *gen, int rc, const struct err *err);

/* ---- tensor, expert and pipeline parallelism: rank 0 runs the job, the other ranks replicate its session ---- */

/* True under each of them. */
static inline bool gen_is_model_parallel(const struct gen *gen)
{
    return gen->ranks && gen->parallelism != DATA_PARALLEL;
}

/* Reduces the model to this rank's shard (tensor and expert parallelism) or layers (pipeline parallelism); no
 * effect otherwise. */
int gen_shard_model(struct gen *gen, struct err *err) MUST_USE;

/* Under pipeline parallelism, opens a decoding strategy that keeps several micro-batches in flight,
 * unless gen->strategy is set. */
int gen_open_pipe(struct gen *gen, struct err *err) MUST_USE;

/* True if this rank replicates rank 0's session: then gen_replicate() runs until the job ends. */
bool gen_is_replica(const struct gen *gen);
int gen_replicate(struct gen *gen, struct err *err) MUST_USE;

/* Called between the job, which returned `rc`, and gen_close_ranks(): ends the replicas if rc is 0. */
int gen_end_model_parallel(struct gen *gen, int rc, struct err *err);

/* Collects the communication statistics of all ranks. */
int gen_count_traffic(struct gen *gen, struct err *err) MUST_USE;
