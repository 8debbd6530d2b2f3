/* The number of cache allocations T and the shape of drafts, chosen together: the BMC paper's eq. 9
 * with measured times. Pass times are measured (a staircase, not k times that of a token), and near
 * the end of the allocated entries drafts are only as large as the padding that is left, since the
 * cache never grows for drafts (BMC paper, VI-A). */
#pragma once

#include "decode/spec/draft_autotune.h"
#include "tune/costmodel.h"

struct spec_costs {
    struct cost_config cache; /* N, and the rates of copying and allocation */
    /* The target's passes by tokens per sequence, in a small and a large cache: entries that they
     * attend to. In between, and beyond, the time is linear in the entries. */
    struct row_times target[2];
    size_t attended[2];
    const struct row_times *draft; /* passes of the draft model; NULL: drafting is free */
    /* [ranks] acceptance rate of a node's child by rank, as for draft_autotune() */
    const double *accept;
    size_t ranks;
};

/* A draft's shape: a chain, or the optimal tree of so many draft tokens and levels. */
struct spec_shape {
    size_t draft_tokens; /* 0: plain decoding */
    bool tree;
    size_t levels; /* of a tree, the root's included */
};

struct spec_plan {
    size_t T;
    struct spec_shape shape;
    double tokens;  /* expected per step while there is room for the whole draft */
    double seconds; /* expected of a decode from an empty cache to N tokens */
    size_t plain_T; /* the best T without drafts, and its time */
    double plain_seconds;
};

/* The fastest T, of powers of two, and shape of at most `most` draft tokens; plain decoding if drafts
 * gain less than 10 %. Fails if the costs
 * cannot be used (cost_config_check()), or without memory. */
int spec_plan(struct spec_plan *plan, const struct spec_costs *costs, size_t most,
              struct err *err) MUST_USE;

/* The expected time of one shape with T allocations, as spec_plan() computes it. */
int spec_plan_seconds(double *seconds, const struct spec_costs *costs, size_t T,
                      const struct spec_shape *shape, struct err *err) MUST_USE;
