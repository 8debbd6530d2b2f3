/* Ranks: the processes of a run started by mpirun. Rank 0 reads input and writes results; the
 * others print only errors, prefixed with their name. */
#ifndef BMC_GEN_RANKS_H
#define BMC_GEN_RANKS_H

#include "gen/gen.h"

/* The environment variables that a launcher such as mpirun sets. A shell started within a run
 * passes them on, so they may belong to another run. */
struct launched {
    int rank;            /* -1: no launcher, or variable `by` is not a number */
    int size;            /* -1: variable `size_by` is not a number; 0: unknown */
    const char *by;      /* name of the variable with the rank; NULL: none is set */
    const char *size_by; /* name of the variable with the number of ranks, or NULL */
};

struct launched launched(void);

/* Fails if a launcher variable is not a number, or if rank and size contradict each other. */
int launched_check(const struct launched *l, struct err *err) MUST_USE;

/* Fails if the launcher's variables contradict MPI's rank and size. */
int launched_fits(const struct launched *l, int rank, int size, struct err *err) MUST_USE;

/* Call before parsing options: mutes errors of ranks other than 0, since rank 0 prints the same.
 * Ranks with wrong variables or an unknown number of ranks are not muted. */
void ranks_mute_errors(void);
bool ranks_errors_muted(void);
void ranks_unmute_errors(void);

/* From here on, a rank other than 0 prints nothing except by ranks_say(). */
void ranks_mute(void);

/* Prints "PROGRAM: rank 3 on HOST: sentence" to the rank's original stderr. */
void ranks_say(const char *program, const char *sentence);

/* "rank 3 on HOST" */
struct rank_name {
    char text[96];
};
struct rank_name rank_name(void);

/* Starts a process that ends this rank, with a message, if the rank stays stopped (SIGSTOP) for
 * some seconds. Call before creating threads. */
void supervisor_begin(const char *program);

/* Opens gen->ranks under a launcher or with --parallelism, and sets gen->parallelism. Clears output
 * options on ranks other than 0. */
int gen_open_ranks(struct gen *gen, struct gen_options *options, struct err *err) MUST_USE;

/* Checks that all ranks have the same version, options and open models; distributes rank 0's seed. */
int gen_agree(struct gen *gen, const struct model *draft, struct err *err) MUST_USE;

/* Called after the job, whose result is `rc`: ranks that succeeded wait for each other. A rank that
 * failed prints its error and ends the run; on rank 0 this function then does not return. */
void gen_close_ranks(struct gen *gen, int rc, const struct err *err);

#endif
