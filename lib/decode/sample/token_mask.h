/* The tokens that a request's constraint allows next, end tokens included. */
#pragma once

#include "text/constrain/constraint.h"
#include "text/ids.h"

/* A bit per token id; zero-initialised it has no memory yet. */
struct token_mask {
    uint64_t *bits;
    size_t words;
    bool any; /* a token is allowed */
};

void token_mask_release(struct token_mask *mask);

/* Allows all tokens, or none; one of them, or not. Ids beyond the mask are left alone. */
int token_mask_fill(struct token_mask *mask, size_t vocab, bool allowed, struct err *err) MUST_USE;
void token_mask_put(struct token_mask *mask, uint32_t id, bool allowed);

/* Sets the mask for a state of a constraint. The end tokens `ends` are allowed where the text may
 * end. */
int token_mask_set(struct token_mask *mask, struct constraint *constraint, uint32_t state,
                   const struct ids *ends, struct err *err) MUST_USE;

/* True if a token may follow: one of the text, or an end token. */
bool token_is_allowed(struct constraint *constraint, uint32_t state, const struct ids *ends,
                      uint32_t token);
