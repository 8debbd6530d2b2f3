/* Acceptance rules of speculative sampling other than rejection_verify(): incorrect ones, which
 * tests must detect, and a correct one. */
#ifndef BMC_TEST_RULES_H
#define BMC_TEST_RULES_H

#include <assert.h>
#include <string.h>

#include "decode/sample/rejection.h"

/* Incorrect: after a rejection the token is sampled from p, not from norm(max(0, p - q)). */
static inline size_t wrong_residual(struct verifier *v, const struct candidate *p, size_t n_p,
                                    const uint32_t *child, size_t n, const struct candidate *q,
                                    size_t n_q, struct draws *draws, uint32_t *id)
{
    const size_t accepted = rejection_verify(v, p, n_p, child, n, q, n_q, draws, id);
    if (accepted == n)
        rejection_verify(v, p, n_p, NULL, 0, NULL, 0, draws, id);
    return accepted;
}

/* Incorrect: each sibling is verified as if it had been drawn from q with replacement. */
static inline size_t wrong_siblings(struct verifier *v, const struct candidate *p, size_t n_p,
                                    const uint32_t *child, size_t n, const struct candidate *q,
                                    size_t n_q, struct draws *draws, uint32_t *id)
{
    for (size_t i = 0; i < n; i++)
        if (rejection_verify(v, p, n_p, child + i, 1, q, n_q, draws, id) == 0)
            return i;
    return rejection_verify(v, p, n_p, NULL, 0, NULL, 0, draws, id) + n;
}

/* Incorrect: a rejected draft token is not removed from q before the next one is verified. */
static inline size_t wrong_replacement(struct verifier *v, const struct candidate *p, size_t n_p,
                                       const uint32_t *child, size_t n, const struct candidate *q,
                                       size_t n_q, struct draws *draws, uint32_t *id)
{
    struct candidate left[64];
    assert(n_p <= ARRAY_LEN(left));
    memcpy(left, p, n_p * sizeof *p);
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        if (rejection_verify(v, left, n_p, child + i, 1, q, n_q, draws, id) == 0)
            return i;
        for (size_t a = 0; a < n_p; a++) {
            for (size_t b = 0; b < n_q; b++)
                if (q[b].id == left[a].id)
                    left[a].p -= q[b].p;
            sum += left[a].p = left[a].p > 0 ? left[a].p : 0;
        }
        for (size_t a = 0; a < n_p; a++)
            left[a].p /= sum;
    }
    rejection_verify(v, left, n_p, NULL, 0, NULL, 0, draws, id);
    return n;
}

/* Correct, but accepts fewer: draft tokens are verified as deterministic, whatever their origin. */
static inline size_t right_as_chosen(struct verifier *v, const struct candidate *p, size_t n_p,
                                     const uint32_t *child, size_t n, const struct candidate *q,
                                     size_t n_q, struct draws *draws, uint32_t *id)
{
    (void)q, (void)n_q;
    return rejection_verify(v, p, n_p, child, n, NULL, 0, draws, id);
}

/* Incorrect: one draft token in ten is accepted without verification. */
static inline size_t wrong_eager(struct verifier *v, const struct candidate *p, size_t n_p,
                                 const uint32_t *child, size_t n, const struct candidate *q, size_t n_q,
                                 struct draws *draws, uint32_t *id)
{
    if (n && draws_next(draws) < 0.1) {
        *id = child[0];
        return 0;
    }
    return rejection_verify(v, p, n_p, child, n, q, n_q, draws, id);
}

#endif
