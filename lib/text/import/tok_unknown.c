/* Byte fallback and the unknown token, shared by the models. */
#include "text/import/tok_unknown.h"

int tok_add_bytes(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                  bool *added, struct err *err)
{
    *added = false;
    if (!(tok->flags & TOK_BYTE_FALLBACK))
        return 0;
    for (size_t i = 0; i < len; i++)
        if (tok->byte_unit[(unsigned char)text[i]] >= tok->ids)
            return 0;
    for (size_t i = 0; i < len; i++)
        if (ids_add(ids, tok->byte_unit[(unsigned char)text[i]], err) < 0)
            return -1;
    *added = true;
    return 0;
}

int tok_add_unknown(const struct tokenizer *tok, const char *text, size_t len, size_t from,
                    struct ids *ids, struct err *err)
{
    bool added;
    if (tok_add_bytes(tok, text, len, ids, &added, err) < 0)
        return -1;
    if (added)
        return 0;
    if (tok->unk == TOK_NONE)
        return err_set(err, "a character is not in the tokenizer's vocabulary, nor is its unk_token");
    if (ids->len > from && ids->id[ids->len - 1] == tok->unk)
        return 0;
    return ids_add(ids, tok->unk, err);
}
