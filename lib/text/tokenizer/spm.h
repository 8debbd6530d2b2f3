/* SentencePiece's BPE, which merges by token scores. */
#ifndef BMC_SPM_H
#define BMC_SPM_H

#include "text/ids.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/tok_tables.h"

/* Scratch memory, reused for all pre-tokens. Zero-initialised is empty. */
struct spm {
    const struct tokenizer *tok; /* this and the next two are set during an encode */
    const char *text;
    size_t len;
    struct merge_queue merge_queue;
    struct ids start; /* start of each symbol */
    /* [ids]: bytes of the left part of the last merge to an unused token, or 0 */
    uint32_t *left;
};

void spm_release(void *scratch);

/* Appends the ids of a pre-token of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a
 * struct spm. */
int spm_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err) MUST_USE;

#endif
