/* Byte-pair encoding of one pre-tokenized piece. */
#ifndef BMC_BPE_H
#define BMC_BPE_H

#include "text/ids.h"
#include "text/merging.h"
#include "text/tok_tables.h"

/* Room that is used again for piece after piece. Zero-initialised is empty. */
struct bpe {
    const struct tokenizer *tok; /* while a piece is encoded */
    struct ids units;            /* what a piece starts as */
    struct merging merging;      /* of long pieces only */
};

void bpe_release(void *room);

/* Appends the ids of a piece of at most UINT32_MAX / 4 bytes of valid UTF-8, or of any bytes where the
 * vocabulary is byte-level; `room` is a struct bpe. */
int bpe_encode(const struct tokenizer *tok, void *room, const char *piece, size_t len, struct ids *ids,
               struct err *err) MUST_USE;

#endif
