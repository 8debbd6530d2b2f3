/* Added tokens: found in a text before anything else looks at it. */
#ifndef BMC_ADDED_H
#define BMC_ADDED_H

#include "text/ids.h"
#include "text/slice.h"
#include "text/tok_tables.h"

/* Which tokens count: in words that somebody says, special ones and marks do not. */
struct added_guard {
    bool special, plain;
    const struct ids *marks;  /* ids that are treated like special ones; NULL: none */
    const struct span *words; /* ascending, in the whole text */
    size_t n_words;
    size_t at; /* of this text in the whole one */
};

/* One pass over one text, which it divides into added tokens and what lies between them. */
struct added_scan {
    const struct tokenizer *tok;
    unsigned list; /* 0: those before the normalizer, 1: those after it */
    const char *text;
    size_t len;
    const struct added_guard *guard; /* NULL: all count */
    size_t word;                     /* the first of the guard's that does not end before here */
    size_t at;                       /* searched up to here */
    size_t done;                     /* given out up to here */
    size_t space_end;                /* white space is known to reach from some earlier place to here */
    uint32_t id; /* found, but the text before it was given out first; else TOK_NONE */
    size_t id_end;
};

void added_scan_init(struct added_scan *scan, const struct tokenizer *tok, unsigned list,
                     const char *text, size_t len, const struct added_guard *guard);

/* The next part: true and either an id, or TOK_NONE and the bounds of a text without added tokens. */
bool added_scan_next(struct added_scan *scan, uint32_t *id, size_t *start, size_t *end);

/* The longest added token of a list that a text begins with, or NULL. */
const struct tok_added *added_longest(const struct tokenizer *tok, unsigned list, const char *text,
                                      size_t len);

#endif
