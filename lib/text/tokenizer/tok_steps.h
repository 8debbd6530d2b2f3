/* Operands a and b of struct tok_step, and size limits, for normalizers and pre-tokenizers. */
#ifndef BMC_TOK_STEPS_H
#define BMC_TOK_STEPS_H

#include "text/pattern.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

struct slice step_a(const struct tokenizer *tok, const struct tok_step *step);
struct slice step_b(const struct tokenizer *tok, const struct tok_step *step);

/* Starts a search in `text` for the regular expression that is operand a of a step. */
int step_search(const struct tokenizer *tok, const struct tok_step *step, struct matcher *matcher,
                struct slice text, struct search *search, struct err *err) MUST_USE;

/* Maximum bytes to which steps may expand a text of `len` bytes: those of untrusted tables could
 * double it repeatedly. */
size_t step_limit(size_t len);
int step_check_growth(size_t limit, size_t len, struct err *err) MUST_USE;

#endif
