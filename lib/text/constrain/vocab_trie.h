/* The tokens of a vocabulary as a trie of their bytes, to find all tokens that an automaton allows
 * in one walk. */
#pragma once

#include "text/tokenizer/tokenizer.h"

enum {
    TRIE_TOKEN_BYTES = 1024, /* longer tokens are left out */
    /* Groups, for vocab_trie.groups: those of ASCII characters, then other characters, and bytes that
     * are not UTF-8 */
    TRIE_ASCII = 44,
    TRIE_OTHER = TRIE_ASCII,
    TRIE_INVALID,
};

struct trie_node {
    /* Bit per group of which there are characters below the node; incomplete ones at the ends of tokens
     * count as well. */
    uint64_t groups;
    uint32_t child; /* the nodes one byte further on are child .. child + n_children */
    uint32_t first,
        last; /* the ranks of tokens that begin with the node's bytes; those equal to them first */
    uint16_t n_children, below; /* below: depth of the deepest node below, counted from the node */
    uint16_t chars; /* characters of the node's bytes, an incomplete one at the end included */
    uint8_t byte;
};

/* Node 0 is the root. The children of a node lie side by side, as walks look at all of them. Tokens are
 * ranked by their bytes. */
struct vocab_trie {
    size_t vocab; /* ids are below */
    size_t n, n_order;
    struct trie_node *node; /* [n] */
    uint32_t *order;        /* [n_order]: ids by rank */
    uint16_t *chars;        /* [n_order]: characters of the tokens, as trie_node.chars */
    uint32_t *text_at; /* [vocab + 1]: the bytes of token i are text[text_at[i] .. text_at[i + 1]) */
    char *text;
};

/* The group of each ASCII character. */
const uint8_t *vocab_trie_groups(void);

/* Moves on in a UTF-8 character: the ranges of its bytes after the first one that are to come. */
struct utf8_rest {
    uint8_t first, last; /* of the next byte */
    uint8_t n;           /* bytes to come; 0: the character is complete */
};

/* The bytes after a byte that is not ASCII; false: it begins no character. */
bool utf8_rest_begin(uint8_t byte, struct utf8_rest *rest);

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
