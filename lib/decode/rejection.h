/* Rejection sampling: candidates may stand for the target's own choice, and its distribution stays exactly what
 * it is.
 *
 * Leviathan et al. (2023), Chen et al. (2023), and for several candidates Sequoia (Chen et al., 2024): candidate
 * x, drawn from q, is accepted with probability min(1, p(x) / q(x)); otherwise p becomes norm(max(0, p - q)), x
 * leaves q, and the next one is looked at. When none is left, the token is drawn from what p has become. A
 * candidate that was not drawn but chosen has q(x) = 1: it is accepted with probability p(x), otherwise it leaves p. */
#ifndef BMC_REJECTION_H
#define BMC_REJECTION_H

#include "decode/rng.h"
#include "decode/sampler.h"

/* Scratch memory. */
struct verifier {
    double *p, *q; /* [vocab], zeros between calls */
};

int verifier_open(struct verifier *verifier, size_t vocab, struct err *err) MUST_USE;
void verifier_close(struct verifier *verifier);

/* p[0..n_p): the target's distribution, different ids, probabilities that sum to 1. child[0..n): candidates in
 * the order in which they were drawn without replacement from q[0..n_q); n_q == 0: they were chosen. Returns the
 * index of the accepted one, or n; *id is the next token either way. */
typedef size_t verify_rule(struct verifier *verifier, const struct candidate *p, size_t n_p,
                           const uint32_t *child, size_t n, const struct candidate *q, size_t n_q,
                           struct draws *draws, uint32_t *id);

verify_rule verify_choice;

/* Draws up to n different tokens from q, one after the other without replacement; returns how many there are. */
size_t draw_children(struct verifier *verifier, const struct candidate *q, size_t n_q, size_t n,
                     struct draws *draws, uint32_t *child);

#endif
