/* What normalizers and pre-tokenizers share: the texts and the pattern of a step of the tables. */
#ifndef BMC_TOK_STEPS_H
#define BMC_TOK_STEPS_H

#include "text/pattern.h"
#include "text/slice.h"
#include "text/tok_tables.h"

struct slice step_a(const struct tokenizer *tok, const struct tok_step *step);
struct slice step_b(const struct tokenizer *tok, const struct tok_step *step);

/* Starts a pass over a text with pattern a of a step. */
int step_search(const struct tokenizer *tok, const struct tok_step *step, struct matcher *matcher,
                struct slice text, struct search *search, struct err *err) MUST_USE;

/* How long a text of `len` bytes may become: steps of hostile tables may double it again and again. */
size_t step_limit(size_t len);
int step_check_growth(size_t limit, size_t len, struct err *err) MUST_USE;

#endif
