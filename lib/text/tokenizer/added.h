/* Added tokens: matched in a text before any other step of tokenisation. */
#pragma once

#include "text/ids.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

/* Restricts which added tokens match. Special tokens and delimiters of a chat template never match
 * inside chat content. */
struct added_filter {
    bool special, plain; /* special tokens, and the other added tokens, may match */
    /* delimiters of the chat template: ids that are treated like special tokens; NULL: none */
    const struct ids *delimiters;
    const struct span *content; /* chat content: ascending ranges of the whole text */
    size_t n_content;
    size_t at; /* offset of the scanned text in the whole text */
};

/* Scan of a text that splits it into added tokens and the text between them. */
struct added_scan {
    const struct tokenizer *tok;
    unsigned list; /* of added tokens; 0: matched before the normalizer, 1: after it */
    const char *text;
    size_t len;
    const struct added_filter *filter; /* NULL: all added tokens may match */
    /* index of the first range in filter->content that ends after `at` */
    size_t word;
    size_t at;   /* offset up to which `text` is scanned */
    size_t done; /* offset up to which parts of `text` were returned */
    /* end of the white space that includes `at`, if known */
    size_t space_end;
    uint32_t id; /* a token found, to be returned after the text before it; else TOK_NONE */
    size_t id_end;
};

void added_scan_init(struct added_scan *scan, const struct tokenizer *tok, unsigned list,
                     const char *text, size_t len, const struct added_filter *filter);

/* Gets the next part of the text: the id of an added token, or TOK_NONE and a byte range without
 * added tokens. False at the end. */
bool added_scan_next(struct added_scan *scan, uint32_t *id, size_t *start, size_t *end);

/* The longest added token of a list with which `text` begins, or NULL. */
const struct tok_added *added_longest(const struct tokenizer *tok, unsigned list, const char *text,
                                      size_t len);
