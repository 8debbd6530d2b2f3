/* The worker of a rank: generates what it is dealt. */
#ifndef BMC_GEN_WORKER_H
#define BMC_GEN_WORKER_H

#include "gen_post.h"
#include "gen_jsonl.h"

/* Until no more lines follow, or the run ends; what went wrong is sent, too. */
int worker_run(struct gen *gen, struct post *post, struct err *err) MUST_USE;

#endif
