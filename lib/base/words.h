/* Words of strangers in our sentences: bounded, printable, and the known word that may be meant. */
#ifndef BMC_WORDS_H
#define BMC_WORDS_H

#include "base/base.h"

/* The beginning of a text in whole characters, ended by ".." when there is more, without control characters. */
struct excerpt {
    char text[64];
};

struct excerpt excerpt_of(const char *text, size_t len);

/* How many characters must be put in, left out, changed or swapped with their neighbour to make one word of the
 * other; of long words only the beginning counts. */
size_t words_apart(const char *a, const char *b);

#endif
