/* Ids -> text: one token's bytes, and the stream of whole characters made of them. */
#ifndef BMC_DETOK_H
#define BMC_DETOK_H

#include "base/err.h"
#include "base/mem.h"

struct tokenizer;

/* Appends what a token contributes to a text, before invalid bytes are dealt with; `first` when no
 * token stands before it. */
int detok_piece(const struct tokenizer *tok, uint32_t id, bool first, struct buf *out,
                struct err *err) MUST_USE;

/* Ids to text, one at a time. Whole characters only: bytes of an unfinished character are held back
 * until it is finished, or until detok_finish(), and bytes that can never become one turn into U+FFFD.
 * Special tokens add nothing unless `keep_special`. */
struct detok {
    const struct tokenizer *tok;
    bool keep_special;
    bool started; /* a token came before: leading-space rules no longer apply */
    unsigned char held[4];
    size_t held_len;
};

void detok_init(struct detok *detok, const struct tokenizer *tok, bool keep_special);
int detok_add(struct detok *detok, uint32_t id, struct buf *out, struct err *err) MUST_USE;
int detok_finish(struct detok *detok, struct buf *out, struct err *err) MUST_USE;

#endif
