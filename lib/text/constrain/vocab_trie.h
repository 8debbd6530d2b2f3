/* The tokens of a vocabulary as a trie of their bytes, to find all tokens that an automaton allows
 * in one walk. */
#ifndef BMC_VOCAB_TRIE_H
#define BMC_VOCAB_TRIE_H

#include "text/tokenizer/tokenizer.h"

enum {
    TRIE_TOKEN_BYTES = 1024, /* longer tokens are left out */
    TRIE_GROUPS = 56,        /* groups of bytes, for vocab_trie.groups */
};

/* Nodes are in depth-first order: node 0 is the root, the nodes below node n are [n + 1, end[n]).
 * Tokens are sorted by their bytes: those of node n itself are order[first[n] .. first[n + 1]), those
 * of the nodes below as well order[first[n] .. first[end[n]]). */
struct vocab_trie {
    size_t vocab; /* ids are below */
    size_t n, n_order;
    uint8_t *byte;        /* [n] */
    uint16_t *depth;      /* [n] */
    uint16_t *below;      /* [n]: depth of the deepest node below, counted from the node */
    uint32_t *end;        /* [n] */
    uint32_t *first;      /* [n + 1] */
    uint64_t *groups;     /* [n]: bit per group of which there are bytes below the node */
    uint32_t *order;      /* [n_order]: ids */
    uint32_t *text_at;    /* [vocab + 1]: the bytes of token i are text[text_at[i] .. text_at[i + 1]) */
    char *text;
};

/* The group of each byte. */
extern const uint8_t *vocab_trie_groups(void);

/* Special tokens, tokens without bytes and ids from tokenizer_vocab() on are left out. `vocab` is the
 * number of logits. */
int vocab_trie_open(struct vocab_trie **trie, const struct tokenizer *tok, size_t vocab,
                    struct err *err) MUST_USE;

/* The same for given tokens: token i has the bytes text[at[i] .. at[i + 1]); none are left out if
 * there are any bytes. Takes over both arrays, also on failure. */
int vocab_trie_build(struct vocab_trie **trie, char *text, uint32_t *at, size_t vocab,
                     struct err *err) MUST_USE;
void vocab_trie_close(struct vocab_trie *trie);

/* The bytes of a token; empty for those left out. */
static inline const char *vocab_trie_text(const struct vocab_trie *trie, uint32_t id, size_t *len)
{
    *len = id < trie->vocab ? trie->text_at[id + 1] - trie->text_at[id] : 0;
    return trie->text + (id < trie->vocab ? trie->text_at[id] : 0);
}

#endif
