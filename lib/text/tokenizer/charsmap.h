/* SentencePiece's precompiled normalisation rules.
 *
 * The CHARSMAP section has SentencePiece's format: u32 size of the trie in bytes; the trie, a
 * double array of u32 units; the zero-terminated replacement strings. */
#ifndef BMC_CHARSMAP_H
#define BMC_CHARSMAP_H

#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

/* Finds the longest, or else the shortest, rule that matches at the start of `text`. 1: *becomes is
 * the replacement of the first *used bytes; 0: no rule matches; -1: error. */
int charsmap_find(const struct tokenizer *tok, struct slice text, bool longest, struct slice *becomes,
                  size_t *used, struct err *err) MUST_USE;

/* True if the sizes in a charsmap fit and its strings are UTF-8; the trie is not checked. */
bool charsmap_valid(const char *bytes, size_t size);

#endif
