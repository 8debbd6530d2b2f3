/* Merges adjacent symbols in order of rank, with a priority queue. */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "text/ids.h"
#include "text/tokenizer/tok_tables.h"

/* Symbols and queue, reused for all pre-tokens; to be initialised with zeros. */
struct merge_queue {
    struct merge_queue_link *link;
    size_t cap;
    uint64_t *queue;
    size_t queue_len;
};

/* Scratch memory of bpe_encode(), reused for all pre-tokens; to be initialised with zeros. */
struct bpe {
    const struct tokenizer *tok;    /* set by bpe_encode() */
    struct ids units;               /* initial symbols */
    struct merge_queue merge_queue; /* only for long pre-tokens */
};

/* Scratch memory of spm_encode(), reused for all pre-tokens; to be initialised with zeros. */
struct spm {
    const struct tokenizer *tok; /* tok, text and len are set by spm_encode() */
    const char *text;
    size_t len;
    struct merge_queue merge_queue;
    struct ids start; /* byte offset of each symbol in `text` */
    /* [ids]: bytes of the left symbol in the last merge that formed an unused token; else 0 */
    uint32_t *left;
    bool formed_unused; /* a merge could form an unused token */
    /* Bits of a hash of two characters that follow each other inside a token; NULL: not needed yet. Between other
     * characters a text can be cut. */
    uint8_t *inside;
};

/* Scratch memory of unigram_encode(), reused for all pre-tokens; to be initialised with zeros. */
struct unigram {
    struct lattice_node *end;
    size_t cap;
    struct ids path;
};

/* Scratch memory of a model's encode(), reused for all pre-tokens; to be initialised with zeros. */
union tok_scratch {
    struct bpe bpe;
    struct spm spm;
    struct unigram unigram;
    struct buf word; /* of wordpiece_encode() */
};

/* A tokenizer model. To add one: a kind in tok_tables.h with its sections, a file with these two
 * functions, a row in tok_model.c, and a reader in tok_build.c. */
struct tok_model {
    const char *name; /* "type" in tokenizer.json */

    /* Appends the ids of a pre-token; `scratch` is the model's member of union tok_scratch. */
    int (*encode)(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
                  struct ids *ids, struct err *err);
    void (*release)(void *scratch);
};

extern const struct tok_model tok_models[KIND_COUNT];
