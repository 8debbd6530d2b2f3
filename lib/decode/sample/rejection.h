/* Speculative sampling by rejection: accepts or rejects draft tokens so that the output keeps exactly the
 * target model's distribution, as another sample than without drafts.
 *
 * Leviathan et al. (2023), Chen et al. (2023), and Sequoia (Chen et al., 2024) for several draft
 * tokens: x, drawn from q, is accepted with probability min(1, p(x) / q(x)). If it is rejected, p
 * becomes norm(max(0, p - q)), x is removed from q, and the next draft token is tried. If all are
 * rejected, the token is sampled from the remaining p. Deterministic draft tokens have q(x) = 1: x
 * is accepted with probability p(x), otherwise it is removed from p. */
#pragma once

#include "decode/sample/rng.h"
#include "decode/sample/sampler.h"

/* Scratch memory: probabilities by token id, of the target (p) and of the drafter (q). */
struct verifier {
    double *p, *q; /* [vocab], zeros between calls */
};

int verifier_open(struct verifier *verifier, size_t vocab, struct err *err) MUST_USE;
void verifier_close(struct verifier *verifier);

/* Chooses the next token, *id: an accepted draft token, whose index is returned, or another one;
 * then n is returned. p[0..n_p) is the target's distribution: distinct ids whose probabilities add
 * up to 1. child[0..n) are the draft tokens in the order in which they were drawn from q[0..n_q)
 * without replacement; n_q == 0: they are deterministic. */
typedef size_t rejection_rule(struct verifier *verifier, const struct candidate *p, size_t n_p,
                              const uint32_t *child, size_t n, const struct candidate *q, size_t n_q,
                              struct draws *draws, uint32_t *id);

rejection_rule rejection_verify;
