/* SentencePiece's precompiled normalisation rules.
 *
 * The CHARSMAP section has SentencePiece's format: u32 size of the trie in bytes; the trie, a
 * double array of u32 units; the zero-terminated replacement strings. */
#ifndef BMC_CHARSMAP_H
#define BMC_CHARSMAP_H

#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

/* Matches the longest or shortest rule that is a prefix of `text`: 1 with the replacement and
 * the bytes it replaces, 0 if none, -1 on error. */
int charsmap_find(const struct tokenizer *tok, struct slice text, bool longest, struct slice *becomes,
                  size_t *used, struct err *err) MUST_USE;

/* True if the bytes have the structure of a charsmap. */
bool charsmap_valid(const char *bytes, size_t size);

#endif
