/* The Unigram model: the segmentation with the maximum sum of scores. */
#ifndef BMC_UNIGRAM_H
#define BMC_UNIGRAM_H

#include "text/ids.h"
#include "text/tokenizer/tok_tables.h"

/* Best segmentation of a pre-token up to a byte offset. */
struct lattice_node {
    double score;
    uint32_t start; /* start of the last token, or TOK_NONE: unreachable */
    uint32_t id;    /* id of the last token, or TOK_NONE: a character without a token */
};

/* Scratch memory of unigram_encode(), reused for all pre-tokens; to be initialised with zeros. */
struct unigram {
    struct lattice_node *end;
    size_t cap;
    struct ids path;
};

void unigram_release(void *scratch);

/* Appends the ids of a pre-token of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a
 * struct unigram. */
int unigram_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
                   struct ids *ids, struct err *err) MUST_USE;

#endif
