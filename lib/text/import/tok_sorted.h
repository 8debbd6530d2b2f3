/* Tables derived from a vocabulary by sorting it: ranks by score, and a trie. */
#ifndef BMC_TOK_SORTED_H
#define BMC_TOK_SORTED_H

#include "base/mem.h"
#include "text/tokenizer/tok_tables.h"

/* A vocabulary; ids without TOK_MODEL are ignored. */
struct tok_vocab {
    const char *bytes;
    const uint32_t *token_at; /* [ids + 1] offsets into bytes */
    const uint8_t *flags;
    uint32_t ids;
};

/* The trie's arrays, for the sections TRIE_*. */
struct tok_trie {
    uint32_t *run;
    uint8_t *byte;
    uint32_t *id;
    size_t nodes;
};

/* Bytes of the longest token. */
uint32_t tok_vocab_longest(const struct tok_vocab *vocab);

/* True if some token contains a space (U+2581) after another character, so that it spans words. */
bool tok_vocab_joins_words(const struct tok_vocab *vocab);

/* Fills section RANKS, rank[ids]: 0 for the best score, equal for equal scores, TOK_NONE for
 * ignored ids. */
int tok_vocab_ranks(const struct tok_vocab *vocab, const double *score, uint32_t *rank,
                    struct err *err) MUST_USE;

/* Builds the trie of all tokens. Of tokens with equal bytes the largest id wins. */
int tok_trie_build(const struct tok_vocab *vocab, struct tok_trie *trie, struct err *err) MUST_USE;
void tok_trie_release(struct tok_trie *trie);

#endif
