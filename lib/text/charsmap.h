/* SentencePiece's precompiled normalizer: which characters become which.
 *
 * The CHARSMAP section is as SentencePiece writes it: u32 bytes of a trie; the trie, a double array of
 * u32 units; then the strings that it leads to, each with a 0 byte behind it. */
#ifndef BMC_CHARSMAP_H
#define BMC_CHARSMAP_H

#include "text/slice.h"
#include "text/tok_tables.h"

/* Looks for an entry that a text begins with, the longest one or the shortest: 1 with what it becomes
 * and how many bytes it replaces, 0 when there is none, -1. */
int charsmap_find(const struct tokenizer *tok, struct slice text, bool longest, struct slice *becomes,
                  size_t *used, struct err *err) MUST_USE;

/* Whether the bytes can be a charsmap at all. */
bool charsmap_valid(const char *bytes, size_t size);

#endif
