/* SentencePiece's BPE, which merges by token scores. */
#ifndef BMC_SPM_H
#define BMC_SPM_H

#include "text/ids.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/tok_tables.h"

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

void spm_release(void *scratch);

/* Appends the ids of a pre-token of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a
 * struct spm. */
int spm_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err) MUST_USE;

#endif
