/* SentencePiece's normalizer. */
#ifndef BMC_NORM_SPM_H
#define BMC_NORM_SPM_H

#include "text/slice.h"
#include "text/tok_tables.h"

/* Appends to `out`, which is empty, what a text becomes: characters by the charsmap, spaces by
 * `options` (enum tok_sentencepiece), and those that are left as U+2581. */
int norm_sentencepiece(const struct tokenizer *tok, uint32_t options, struct slice text, size_t limit,
                       struct buf *out, struct err *err) MUST_USE;

#endif
