/* Byte-pair encoding of one pre-token. */
#ifndef BMC_BPE_H
#define BMC_BPE_H

#include "text/ids.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/tok_tables.h"

/* Scratch memory of bpe_encode(), reused for all pre-tokens; to be initialised with zeros. */
struct bpe {
    const struct tokenizer *tok;    /* set by bpe_encode() */
    struct ids units;               /* initial symbols */
    struct merge_queue merge_queue; /* only for long pre-tokens */
};

void bpe_release(void *scratch);

/* Appends the ids of a pre-token: at most UINT32_MAX / 4 bytes, valid UTF-8 unless the
 * vocabulary is byte-level. `scratch` is a struct bpe. */
int bpe_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err) MUST_USE;

#endif
