/* Byte-pair encoding of one pre-tokenized piece. */
#ifndef BMC_BPE_H
#define BMC_BPE_H

#include "text/ids.h"
#include "text/tok_tables.h"

struct bpe_symbol {
    uint32_t id; /* TOK_NONE once it was merged into the one before it */
    uint32_t before;
    uint32_t after;
};

/* Room that is used again for piece after piece. Zero-initialised is empty. */
struct bpe {
    const struct tokenizer *tok;
    struct ids units;          /* what a piece starts as */
    struct bpe_symbol *symbol; /* long pieces only, as is the queue */
    size_t symbol_cap;
    uint64_t *queue;
    size_t queue_len;
    size_t queue_cap;
};

void bpe_release(struct bpe *bpe);

/* Appends the ids of a piece of at most UINT32_MAX / 4 bytes of valid UTF-8. */
int bpe_encode(struct bpe *bpe, const char *piece, size_t len, struct ids *ids,
               struct err *err) MUST_USE;

#endif
