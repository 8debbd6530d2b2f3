/* Pre-tokenizers: split text into pre-tokens, which are encoded independently. */
#ifndef BMC_PRETOK_H
#define BMC_PRETOK_H

#include "text/pattern.h"
#include "text/tokenizer/tok_tables.h"

/* A range of a text of at most 4 GiB; there is one for each word. */
struct short_span {
    uint32_t start, end;
};

struct spans {
    struct short_span *span;
    size_t len, cap;
};

/* Scratch memory and result of pretok_split(), reused. All but `tok` is initialised with zeros. */
struct pretok {
    const struct tokenizer *tok;
    struct matcher matcher;
    struct buf rewritten[2]; /* double buffer: a rewriting step reads one and writes the other */
    const char *text;        /* the result: pretokens.span[] are ranges of it */
    size_t len;
    size_t limit; /* maximum bytes of the text after any step */
    struct spans pretokens, next;
};

void pretok_release(struct pretok *pretok);

/* Runs the pre-tokenizers; `first`: the text is the start of the input. Results are in
 * pretok->text and pretok->pretokens: valid UTF-8, or bytes with a byte-level vocabulary. */
int pretok_split(struct pretok *pretok, const char *text, size_t len, bool first,
                 struct err *err) MUST_USE;

#endif
