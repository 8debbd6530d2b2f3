/* Chooses plain decoding, chains or trees of draft tokens, by measured times and acceptance
 * rates. */
#pragma once

#include "decode/session.h"
#include "decode/spec/tree.h"

enum { AUTOTUNE_POINTS = 17 };

/* Measured times: ms[i] is the time of a forward pass with rows[i] tokens per sequence, the minimum
 * of a few runs. */
struct row_times {
    size_t rows[AUTOTUNE_POINTS];
    double ms[AUTOTUNE_POINTS];
    size_t n;
    bool parallel; /* of a draft model that drafts all levels in one pass */
};

/* Times forward passes of 1, 2, 3, 4, 6, 8, 10, 12, 16 .. and `max` tokens per sequence: kernels
 * compute several tokens at a time, so the time is a staircase. The session must be empty and is
 * empty afterwards; its statistics do not change. `with_logits`: computes logits of all tokens,
 * as verification does. */
int row_times_measure(struct row_times *times, struct session *session, size_t max, bool with_logits,
                      struct err *err) MUST_USE;

double row_times_at(const struct row_times *times, size_t rows); /* ms, linearly interpolated */

/* Time in ms to draft `levels` levels of at most `width` nodes; NULL: drafting is free. */
double row_times_drafting(const struct row_times *draft, size_t levels, size_t width);

struct draft_choice {
    size_t draft_tokens; /* 0: plain decoding is fastest */
    bool tree;
    size_t levels;
    double tokens, ms; /* expected tokens per step, and the time of that step */
    double plain_ms;   /* time of a step without draft tokens */
    /* For reports: draft tokens of the best chain and the best tree, and their speedups. */
    size_t chain, nodes;
    double chain_gain, tree_gain;
};

/* The fastest of plain decoding, chains of up to `chain` draft tokens and trees of up to
 * `nodes`, if the child of rank i is accepted with probability accept[i]. `draft` are the draft
 * model's times; NULL: drafting is free. */
int draft_autotune(struct draft_choice *choice, const struct row_times *target,
                   const struct row_times *draft, const double *accept, size_t ranks, size_t chain,
                   size_t nodes, struct err *err) MUST_USE;
