/* A model that ranks have parts of: rank 0 runs the job, the others follow its session. */
#ifndef BMC_GEN_SPLIT_H
#define BMC_GEN_SPLIT_H

#include "gen.h"

/* The model is split, not the requests. */
static inline bool gen_splits_model(const struct gen *gen)
{
    return gen->ranks && gen->split != SPLIT_REQUESTS;
}

/* After the ranks have agreed: each takes its part of the model. Nothing where they do not split it. */
int gen_split(struct gen *gen, struct err *err) MUST_USE;

/* The session is open: where ranks follow each other, steps do, too, unless gen->strategy has others. */
int gen_open_pipe(struct gen *gen, struct err *err) MUST_USE;

/* This rank has no job but to follow; gen_follow() returns when rank 0 has ended. */
bool gen_follows(const struct gen *gen);
int gen_follow(struct gen *gen, struct err *err) MUST_USE;

/* After the job, with its result, before gen_close_ranks(): one that ended well ends for all ranks. */
int gen_end_split(struct gen *gen, int rc, struct err *err);

/* What the ranks have sent until now; then a line for people, and fields for --stats. Nothing where no model is split. */
int gen_count_split(struct gen *gen, struct err *err) MUST_USE;
void gen_print_split(const struct gen *gen, size_t tokens);
int gen_put_split(const struct gen *gen, size_t tokens, json_t *object, struct err *err) MUST_USE;

#endif
