/* Chain, tree or nothing: what the measured times of this machine say. */
#ifndef BMC_CHOOSE_H
#define BMC_CHOOSE_H

#include "decode/session.h"
#include "decode/tree.h"

enum { CHOOSE_POINTS = 7 };

/* Milliseconds of a step in which each of the session's sequences has rows[i] rows: the quickest of a few. */
struct row_times {
    size_t rows[CHOOSE_POINTS];
    double ms[CHOOSE_POINTS];
    size_t n;
};

/* Times steps of 1, 2, 4 .. and `most` rows. The session is empty before and after, and its statistics are as they
 * were. `with_logits`: of all rows, as verification needs them. */
int row_times_measure(struct row_times *times, struct session *session, size_t most, bool with_logits,
                      struct err *err) MUST_USE;

/* Between the measured ones, on a straight line. */
double row_times_at(const struct row_times *times, size_t rows);

struct choice {
    size_t candidates; /* 0: plain decoding is fastest */
    bool tree;
    size_t levels;
    double tokens, ms; /* expected of a step */
    double plain_ms;
    /* The best of the kind that was not chosen, for the report. */
    size_t chain, nodes;
    double chain_gain, tree_gain;
};

/* The fastest of plain decoding, chains of up to `chain` candidates and trees of up to `nodes`, when the child of rank i
 * is accepted with probability accept[i]. `draft` is NULL when drafting costs nothing. */
int choose_speculation(struct choice *choice, const struct row_times *target,
                       const struct row_times *draft, const double *accept, size_t ranks, size_t chain,
                       size_t nodes, struct err *err) MUST_USE;

#endif
