/* Masks of allowed tokens. */
#include "decode/sample/token_mask.h"

void token_mask_release(struct token_mask *mask)
{
    free(mask->bits);
    *mask = (struct token_mask){0};
}

static int hold_words(struct token_mask *mask, size_t words, struct err *err)
{
    if (mask->words == words)
        return 0;
    token_mask_release(mask);
    mask->bits = mem_alloc(words, sizeof *mask->bits);
    if (!mask->bits)
        return err_no_memory(err, "a mask of tokens");
    mask->words = words;
    return 0;
}

int token_mask_fill(struct token_mask *mask, size_t vocab, bool allowed, struct err *err)
{
    if (hold_words(mask, div_up(vocab, 64), err) < 0)
        return -1;
    memset(mask->bits, allowed ? 0xff : 0, mask->words * sizeof *mask->bits);
    mask->any = allowed;
    return 0;
}

void token_mask_put(struct token_mask *mask, uint32_t id, bool allowed)
{
    const uint64_t bit = (uint64_t)1 << id % 64;
    if (id / 64 >= mask->words)
        return;
    uint64_t *word = &mask->bits[id / 64];
    *word = allowed ? *word | bit : *word & ~bit;
    mask->any = mask->any || allowed;
}

int token_mask_set(struct token_mask *mask, struct constraint *constraint, uint32_t state,
                   const struct ids *ends, struct err *err)
{
    if (hold_words(mask, constraint_mask_words(constraint), err) < 0)
        return -1;
    if (constraint_mask(constraint, state, mask->bits, err) < 0)
        return -1;
    for (size_t i = 0; i < ends->len && constraint_accepts(constraint, state); i++)
        token_mask_put(mask, ends->id[i], true);
    mask->any = false;
    for (size_t i = 0; i < mask->words && !mask->any; i++)
        mask->any = mask->bits[i] != 0;
    return 0;
}

bool token_is_allowed(struct constraint *constraint, uint32_t state, const struct ids *ends,
                      uint32_t token)
{
    for (size_t i = 0; i < ends->len; i++)
        if (ends->id[i] == token)
            return constraint_accepts(constraint, state);
    return constraint_next(constraint, state, token) != CONSTRAINT_DEAD;
}
