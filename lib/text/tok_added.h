/* Added tokens of a tokenizer in the making, whatever files they come from. */
#ifndef BMC_TOK_ADDED_H
#define BMC_TOK_ADDED_H

#include "text/tok_draft.h"

/* Remembers that a token is to be cut out of texts; a later entry of the same id replaces its rules.
 * `flags`: enum tok_added_flag. */
int tok_draft_add_added(struct tok_draft *draft, int64_t id, const char *content, size_t len,
                        uint32_t flags, bool normalized, bool special, struct err *err) MUST_USE;

/* Remembers a token that SentencePiece's user defined: looked for in normalized text, where a space is
 * U+2581. */
int tok_draft_add_user(struct tok_draft *draft, int64_t id, const char *content, size_t len,
                       struct err *err) MUST_USE;

/* Spells the added tokens that are matched in normalized text as the draft's normalizer does: once all
 * of both are there. */
int tok_draft_normalize_added(struct tok_draft *draft, struct err *err) MUST_USE;

#endif
