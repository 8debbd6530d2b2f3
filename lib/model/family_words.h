/* Lines of family files in words. */
#ifndef BMC_FAMILY_WORDS_H
#define BMC_FAMILY_WORDS_H

#include "model/family.h"

enum { WORD_SIZE = 256, MAX_WORDS = 10 };

/* A line's value cut at blanks. */
struct words {
    char text[1024];
    char *word[MAX_WORDS];
    size_t n;
};

/* False when it is too long. */
bool words_split(struct words *words, const char *text);

/* The error of a line that says nothing that can be done. */
int family_bad_line(const struct family_line *line, struct err *err);

#endif
