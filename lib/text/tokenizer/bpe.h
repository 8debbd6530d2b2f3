/* Byte-pair encoding of one pre-token. */
#ifndef BMC_BPE_H
#define BMC_BPE_H

#include "text/ids.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/tok_tables.h"

/* Scratch memory, reused for all pre-tokens. Zero-initialised is empty. */
struct bpe {
    const struct tokenizer *tok;    /* set during an encode */
    struct ids units;               /* initial symbols */
    struct merge_queue merge_queue; /* only for long pre-tokens */
};

void bpe_release(void *scratch);

/* Appends the ids of a pre-token: at most UINT32_MAX / 4 bytes, valid UTF-8 unless the
 * vocabulary is byte-level. `scratch` is a struct bpe. */
int bpe_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err) MUST_USE;

#endif
