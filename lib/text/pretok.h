/* Normalizers and pre-tokenizers: text -> the pieces that are merged on their own. */
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
    struct buf normal[2]; /* normalizers write these in turn */
    struct buf moved[2];  /* as do the pre-tokenizers that change the text */
    const char *text;     /* the result: pieces.span[] are parts of this text */
    size_t len;
    size_t limit; /* bytes that the text may grow to */
    struct spans pieces;
    struct spans next;
};

void pretok_release(struct pretok *pretok);

/* Runs the normalizers. The result stays valid until the next call. */
int pretok_normalize(struct pretok *pretok, const char *text, size_t len, const char **normal,
                     size_t *normal_len, struct err *err) MUST_USE;

/* Runs the pre-tokenizers; `first` when the text is the beginning of what the user wrote. Results are
 * in `text` and `pieces`. */
int pretok_split(struct pretok *pretok, const char *text, size_t len, bool first,
                 struct err *err) MUST_USE;

#endif
