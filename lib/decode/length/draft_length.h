/* Draft lengths: how they begin, their limits, and how they adapt by algorithm 1 of the BASS paper. */
#ifndef BMC_DRAFT_LENGTH_H
#define BMC_DRAFT_LENGTH_H

#include "kernel/gemm.h"

/* Draft lengths by measured gain (draft_gain.h), or by algorithm 1 of the BASS paper (3.2). */
struct draft_length {
    size_t increment, modulus, limit; /* l_incre, l_mod, l_limit of the paper */
    size_t now;                       /* l_draft */
    bool fixed;                       /* `now` never changes */
    bool measured;                    /* by measured gain */
    bool shrank;                      /* s of the paper: the last update reduced `now` */
};

/* First and largest length of drafts whose length adapts, unless options say otherwise. */
#define DRAFT_LENGTH_START 7
#define DRAFT_LENGTH_LIMIT 32

/* Settings that the draft lengths of a run follow from. */
struct draft_length_params {
    bool fixed;                /* always `k` draft tokens */
    bool bass;                 /* adapt by algorithm 1, not by measured gain */
    bool tree;                 /* the drafts are trees: no length is chosen by measured gain */
    size_t k;                  /* with `fixed` */
    size_t start, limit;       /* first and largest length otherwise */
    size_t increment, modulus; /* of algorithm 1; 0: 2 and 10 */
    size_t batch;              /* number of sequences */
    size_t knee;               /* the batch knee */
    bool knee_measured;        /* it limits the drafts of a single sequence, too */
    bool knee_fixed;           /* and those of measured gain, which may else exceed it */
    size_t context;            /* of the target or the draft model, whichever is shorter */
};

/* The draft length to begin with, and its limits. */
struct draft_length draft_length_choose(const struct draft_length_params *params);

/* Updates the draft length after a step by algorithm 1 of the BASS paper, given the tokens of its
 * longest draft (`offered`) and the most tokens accepted of a draft. The length grows only if a draft
 * of the full length `now` was accepted as a whole. It does not change if all of a shorter draft was
 * accepted, whose length free KV entries or the end of the request had limited. */
void draft_length_update(struct draft_length *length, size_t offered, size_t accepted);

/* The largest draft length, at least 1, with which a pass verifies at most `free_rows` tokens: for
 * each of `batch` sequences its newest token and its draft. */
size_t draft_length_limit(size_t free_rows, size_t batch);

/* Lengths that follow from measured times are limited to so many times the batch knee, for memory's
 * sake. */
enum { DRAFT_KNEE_FACTOR = 4 };

/* The batch knee where it was not measured: the batch size for which computing takes as long as reading
 * the weights, larger with bf16 products and AMX tiles (tests/bench/speculation.md). */
size_t draft_default_knee(const struct kernels *kernels, enum precision precision);

/* Positions in the draft model's context that must be left besides those of the draft tokens. */
enum { DRAFT_WINDOW_REST = 2 };

#endif
