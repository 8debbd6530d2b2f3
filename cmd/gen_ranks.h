/* Several processes in one run, its ranks: how they begin, agree and end. Rank 0 reads and writes; what others have to say, they
 * say under their name. */
#ifndef BMC_GEN_RANKS_H
#define BMC_GEN_RANKS_H

#include "gen.h"

/* What the environment variables of a launcher say. They may be those of another run, inherited from a shell that was started in it. */
struct launched {
    int rank;            /* -1: no launcher has started us, or `by` is not a number */
    int size;            /* 0: unknown; -1: `size_by` is not a number */
    const char *by;      /* the variable that gave the rank; NULL: none is set */
    const char *size_by; /* that of the size */
};

struct launched launched(void);

/* The variables are numbers, and fit each other. */
int launched_check(const struct launched *l, struct err *err) MUST_USE;

/* They fit what MPI says. */
int launched_fits(const struct launched *l, int rank, int size, struct err *err) MUST_USE;

/* First thing in main(), before the options are read: what all ranks would complain about, rank 0 says alone. Where the number of ranks is
 * unknown yet, or the variables cannot be right, all of them may speak. */
void ranks_mute_errors(void);
bool ranks_errors_muted(void);
void ranks_unmute_errors(void);

/* A rank beyond the first prints nothing any more, but what ranks_say() says. */
void ranks_mute(void);

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
