/* Normalizer steps that replace characters. */
#ifndef BMC_NORM_CHARS_H
#define BMC_NORM_CHARS_H

#include "text/pattern.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

struct norm_work {
    const struct tokenizer *tok;
    struct matcher *matcher;
    const struct tok_step *step;
    size_t limit; /* maximum size of the result */
};

/* A normalizer step: appends the normalised `text` to `out`. */
typedef int normalize_fn(const struct norm_work *, struct slice text, struct buf *out, struct err *);

/* The Unicode form that the step selects (NFC, NFD, NFKC, NFKD); removal of combining marks;
 * conversion to lower case. */
normalize_fn normalize_unicode, normalize_strip_accents, normalize_lowercase;

/* Applies the charsmap as the tokenizers library does: grapheme clusters of less than 6 bytes,
 * or else their code points, are replaced by their shortest matching rule. */
normalize_fn normalize_charsmap;

/* SentencePiece's normalizer: characters by the charsmap, white space by the step's option (enum
 * tok_sentencepiece), remaining spaces become U+2581. `out` must be empty. */
normalize_fn normalize_sentencepiece;

#endif
