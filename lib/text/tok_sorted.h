/* A vocabulary in order: of scores, and of bytes. */
#ifndef BMC_TOK_SORTED_H
#define BMC_TOK_SORTED_H

#include "base/mem.h"
#include "text/tok_tables.h"

/* What is sorted: all ids with TOK_MODEL. */
struct tok_vocab {
    const char *bytes;
    const uint32_t *token_at; /* ids + 1 offsets into bytes */
    const uint8_t *flags;
    uint32_t ids;
};

/* The sections TRIE_*. */
struct tok_trie {
    uint32_t *run;
    uint8_t *byte;
    uint32_t *id;
    size_t nodes;
};

/* Bytes of the longest token. */
uint32_t tok_vocab_longest(const struct tok_vocab *vocab);

/* Whether some token has a space (U+2581) behind another character. */
bool tok_vocab_joins_words(const struct tok_vocab *vocab);

/* Section RANKS: 0 for the best score, equal ones for equal scores, TOK_NONE for ids that are left out. */
int tok_vocab_ranks(const struct tok_vocab *vocab, const double *score, uint32_t *rank,
                    struct err *err) MUST_USE;

/* Of two tokens with the same bytes the one with the larger id is in the trie. */
int tok_trie_build(const struct tok_vocab *vocab, struct tok_trie *trie, struct err *err) MUST_USE;
void tok_trie_release(struct tok_trie *trie);

#endif
