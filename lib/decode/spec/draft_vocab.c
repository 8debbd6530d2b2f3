/* Checks that a draft model has the target's vocabulary. */
#include <stdio.h>
#include <string.h>

#include "decode/spec/drafter.h"

/* Formats a token in quotes, or "no token" for an id outside the vocabulary. */
static void quote_piece(const struct buf *piece, char text[80])
{
    if (piece->len)
        snprintf(text, 80, "\"%.60s\"", piece->data);
    else
        snprintf(text, 80, "no token");
}

/* Fails unless an id is the same token in both models, and special in both or in neither. */
static int check_id(const struct model *target, const struct model *draft, uint32_t id, struct buf *a,
                    struct buf *b, struct err *err)
{
    const bool special = tokenizer_is_special(target->tok, id);
    if (tokenizer_piece_printable(target->tok, id, a, err) < 0 ||
        tokenizer_piece_printable(draft->tok, id, b, err) < 0)
        return -1;
    char target_piece[80], draft_piece[80];
    quote_piece(a, target_piece);
    quote_piece(b, draft_piece);
    if (a->len != b->len || (a->len && memcmp(a->data, b->data, a->len) != 0))
        return err_set(err,
                       "the draft model %s has another vocabulary: id %u is %s there and %s in the "
                       "target; choose a draft made for this model",
                       draft->path, id, draft_piece, target_piece);
    if (special != tokenizer_is_special(draft->tok, id))
        return err_set(err,
                       "the draft model %s has another vocabulary: id %u, %s, is %s there and "
                       "%s in the target; choose a draft made for this model, or convert both anew "
                       "from files that agree",
                       draft->path, id, target_piece, special ? "an ordinary token" : "a special token",
                       special ? "a special token" : "an ordinary token");
    return 0;
}

int draft_model_check(const struct model *target, const struct model *draft, struct err *err)
{
    const size_t n = size_max(tokenizer_vocab(target->tok), tokenizer_vocab(draft->tok));
    struct buf a = {0}, b = {0};
    int rc = 0;
    for (uint32_t id = 0; id < n && rc == 0; id++) {
        buf_clear(&a);
        buf_clear(&b);
        rc = check_id(target, draft, id, &a, &b, err);
    }
    buf_release(&a);
    buf_release(&b);
    return rc;
}
