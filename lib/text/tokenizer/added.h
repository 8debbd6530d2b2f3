/* Added tokens: matched in a text before any other step of tokenisation. */
#ifndef BMC_ADDED_H
#define BMC_ADDED_H

#include "text/ids.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

/* Restricts which added tokens match: not special tokens and delimiters inside chat content. */
struct added_filter {
    bool special, plain;
    /* ids treated like special tokens (delimiters of the chat template); NULL: none */
    const struct ids *delimiters;
    const struct span *content; /* ascending ranges of the whole text */
    size_t n_content;
    size_t at; /* offset of the scanned text in the whole text */
};

/* Scan of a text that splits it into added tokens and the text between them. */
struct added_scan {
    const struct tokenizer *tok;
    unsigned list; /* 0: matched before the normalizer, 1: after it */
    const char *text;
    size_t len;
    const struct added_filter *filter; /* NULL: all tokens match */
    /* index of the first content range that does not end before `at` */
    size_t word;
    size_t at;   /* scanned up to here */
    size_t done; /* returned up to here */
    /* end of the white space that includes `at`, if known */
    size_t space_end;
    uint32_t id; /* a token found, to be returned after the text before it; else TOK_NONE */
    size_t id_end;
};

void added_scan_init(struct added_scan *scan, const struct tokenizer *tok, unsigned list,
                     const char *text, size_t len, const struct added_filter *filter);

/* Gets the next part: a token id, or TOK_NONE and a byte range without added tokens. False: end. */
bool added_scan_next(struct added_scan *scan, uint32_t *id, size_t *start, size_t *end);

/* The longest added token of a list that is a prefix of `text`, or NULL. */
const struct tok_added *added_longest(const struct tokenizer *tok, unsigned list, const char *text,
                                      size_t len);

#endif
