/* The unigram model: the tokens whose scores add up to the most. */
#ifndef BMC_UNIGRAM_H
#define BMC_UNIGRAM_H

#include "text/ids.h"
#include "text/tok_tables.h"

/* The best way to cover a text up to some byte. */
struct unigram_end {
    double score;
    uint32_t start; /* of the last token, or TOK_NONE: nothing ends here */
    uint32_t id;    /* of the last token, or TOK_NONE for a character that no token covers */
};

/* Room that is used again for piece after piece. Zero-initialised is empty. */
struct unigram {
    struct unigram_end *end;
    size_t cap;
    struct ids cuts;
};

void unigram_release(void *room);

/* Appends the ids of a piece of at most UINT32_MAX / 4 bytes of valid UTF-8; `room` is a struct
 * unigram. */
int unigram_encode(const struct tokenizer *tok, void *room, const char *piece, size_t len,
                   struct ids *ids, struct err *err) MUST_USE;

#endif
