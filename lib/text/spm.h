/* SentencePiece's byte-pair encoding: by the scores of tokens. */
#ifndef BMC_SPM_H
#define BMC_SPM_H

#include "text/ids.h"
#include "text/merging.h"
#include "text/tok_tables.h"

/* Room that is used again for piece after piece. Zero-initialised is empty. */
struct spm {
    const struct tokenizer *tok; /* this and the next while a piece is encoded */
    const char *text;
    size_t len;
    struct merging merging;
    struct ids start; /* where each symbol begins */
    uint32_t *left;   /* by id: bytes of the left part that an unused token was last made of, or 0 */
};

void spm_release(void *room);

/* Appends the ids of a piece of at most UINT32_MAX / 4 bytes of valid UTF-8; `room` is a struct spm. */
int spm_encode(const struct tokenizer *tok, void *room, const char *piece, size_t len, struct ids *ids,
               struct err *err) MUST_USE;

#endif
