/* Operands of steps, and size limits of the texts that they produce. */
#include "text/tokenizer/tok_steps.h"

enum { GROWTH_FACTOR = 64, GROWTH_FREE = 64 << 10 };

struct slice step_a(const struct tokenizer *tok, const struct tok_step *step)
{
    return (struct slice){tok->text + step->a, step->a_len};
}

struct slice step_b(const struct tokenizer *tok, const struct tok_step *step)
{
    return (struct slice){tok->text + step->b, step->b_len};
}

int step_search(const struct tokenizer *tok, const struct tok_step *step, struct matcher *matcher,
                struct slice text, struct search *search, struct err *err)
{
    /* every normalizer and pre-tokenizer step has an index among the tokenizer's patterns */
    size_t index = (size_t)(step - tok->steps[LIST_NORMALIZER]);
    return search_start(search, matcher, tok->patterns, index, tok->text + step->a, step->a_len,
                        text.data, text.size, err);
}

size_t step_limit(size_t len) { return GROWTH_FREE + GROWTH_FACTOR * len; }

int step_check_growth(size_t limit, size_t len, struct err *err)
{
    if (len > limit)
        return err_set(err, "the tokenizer expands a text to more than %zu bytes", limit);
    return 0;
}
