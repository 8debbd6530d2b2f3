/* Operands a and b of struct tok_step, and size limits, for normalizers and pre-tokenizers. */
#pragma once

#include "text/pattern.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

/* Scratch memory of norm_run(), reused for all texts; to be initialised with zeros. */
struct normalizer {
    struct matcher matcher;
    struct buf text[2]; /* double buffer: a step reads one and writes the other */
};

void norm_release(struct normalizer *norm);

/* Runs the tokenizer's normalizers on `text`. The result, *normal, is valid until the next call. */
int norm_run(struct normalizer *norm, const struct tokenizer *tok, const char *text, size_t len,
             const char **normal, size_t *normal_len, struct err *err) MUST_USE;

/* True if the sizes in a charsmap fit and its strings are UTF-8; the trie is not checked. */
bool charsmap_valid(const char *bytes, size_t size);

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
