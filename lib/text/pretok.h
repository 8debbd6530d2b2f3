/* Pre-tokenizers: text -> the pieces that are encoded on their own. */
#ifndef BMC_PRETOK_H
#define BMC_PRETOK_H

#include "text/pattern.h"
#include "text/tok_tables.h"

struct spans {
    struct span *span;
    size_t len;
    size_t cap;
};

/* Room that is used again for text after text. Zero-initialised but for `tok` is empty. */
struct pretok {
    const struct tokenizer *tok;
    struct matcher matcher;
    struct buf moved[2]; /* steps that change the text write these in turn */
    const char *text;    /* the result: pieces.span[] are parts of this text */
    size_t len;
    size_t limit; /* bytes that the text may grow to */
    struct spans pieces;
    struct spans next;
};

void pretok_release(struct pretok *pretok);

/* Runs the pre-tokenizers; `first` when the text is the beginning of what the user wrote. Results are
 * in `text` and `pieces`: valid UTF-8, but for pieces of a byte-level vocabulary. */
int pretok_split(struct pretok *pretok, const char *text, size_t len, bool first,
                 struct err *err) MUST_USE;

#endif
