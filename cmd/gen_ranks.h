/* Several processes in one run, its ranks: how they begin, agree and end. Rank 0 reads and writes; what others have to say, they
 * say under their name. */
#ifndef BMC_GEN_RANKS_H
#define BMC_GEN_RANKS_H

#include "gen.h"

/* What the launcher's variables say. */
struct launched {
    int rank; /* -1: no launcher has started us */
    int size; /* 0: it does not say how many there are */
};

struct launched launched(void);

/* First thing in main(), before the options are read: what all ranks print is printed by rank 0 alone. */
void ranks_quiet(void);

/* "PROGRAM: rank 3 on HOST: sentence" on the standard error that the rank was started with. */
void ranks_say(const char *program, const char *sentence);

/* "rank 3 on HOST" */
struct rank_name {
    char text[96];
};
struct rank_name rank_name(void);

/* Goes on in a child, over which this process watches, and ends as it ends. A child that is killed, or stopped for some
 * seconds, is told with its name and reason, and the exit code is 1: the launcher then ends the other ranks. Called by a process that a
 * launcher has started, before there are threads. */
void guard_begin(const char *program);

/* Wakes the guard if it was stopped. */
void guard_end(void);

/* Opens gen->ranks if a launcher or --split asks for ranks, and settles how they split. Options of rank 0 alone are taken from
 * the others. */
int gen_open_ranks(struct gen *gen, struct gen_options *options, struct err *err) MUST_USE;

/* Once the models are open: all ranks have the same version, options and models, and from here on rank 0's seed. */
int gen_agree(struct gen *gen, const struct model *draft, struct err *err) MUST_USE;

/* After the job, with its result: ranks that have ended well wait for each other; one that failed ends the run, and rank 0
 * says why, and does not return. */
void gen_close_ranks(struct gen *gen, int rc, const struct err *err);

#endif
