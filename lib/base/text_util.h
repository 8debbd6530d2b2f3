/* Texts: comparison, excerpts of untrusted ones for messages, edit distance for "did you mean". */
#ifndef BMC_TEXT_UTIL_H
#define BMC_TEXT_UTIL_H

#include "base/base.h"

/* The beginning of a text, whole characters without control characters; ".." if truncated. */
struct excerpt {
    char text[64];
};

/* Order of two texts by their bytes, as of strcmp(). */
int text_order(const char *a, size_t a_len, const char *b, size_t b_len);

/* True if `text` ends in `end` and is longer. */
bool text_ends(const char *text, const char *end);

/* True if a word is in a list of words separated by single blanks. */
bool text_lists(const char *list, const char *word, size_t len);

struct excerpt excerpt_of(const char *text, size_t len);

/* Edit distance of two words: bytes inserted, removed, replaced or swapped with a neighbour
 * (optimal string alignment). Only their first 32 bytes count. */
size_t edit_distance(const char *a, const char *b);

#endif
