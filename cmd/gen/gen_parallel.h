/* Tensor, expert and pipeline parallelism: rank 0 runs the job, the other ranks replicate its session. */
#ifndef BMC_GEN_PARALLEL_H
#define BMC_GEN_PARALLEL_H

#include "gen/gen.h"

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

/* Communication statistics: collect from ranks, print, add as fields (null if not parallel). */
int gen_count_traffic(struct gen *gen, struct err *err) MUST_USE;
void gen_print_traffic(const struct gen *gen, size_t tokens);
int gen_put_traffic(const struct gen *gen, size_t tokens, json_t *object, struct err *err) MUST_USE;

#endif
