/* Masks of allowed tokens. */
#include "decode/sample/token_mask.h"

void token_mask_release(struct token_mask *mask)
{
    free(mask->bits);
    *mask = (struct token_mask){0};
}

int token_mask_set(struct token_mask *mask, struct constraint *constraint, uint32_t state,
                   const struct ids *ends, struct err *err)
{
    const size_t words = constraint_mask_words(constraint);
    if (mask->words != words) {
        token_mask_release(mask);
        mask->bits = mem_alloc(words, sizeof *mask->bits);
        if (!mask->bits)
            return err_no_memory(err, "a mask of tokens");
        mask->words = words;
    }
    if (constraint_mask(constraint, state, mask->bits, err) < 0)
        return -1;
    for (size_t i = 0; i < ends->len && constraint_accepts(constraint, state); i++)
        if (ends->id[i] / 64 < words)
            mask->bits[ends->id[i] / 64] |= (uint64_t)1 << ends->id[i] % 64;
    mask->any = false;
    for (size_t i = 0; i < words && !mask->any; i++)
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
