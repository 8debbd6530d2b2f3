/* Detokenisation: bytes of a token, and streaming of whole characters. */
#pragma once

#include "base/err.h"
#include "base/mem.h"

struct tokenizer;

/* Appends a token's bytes as all decoders leave them, possibly invalid UTF-8. `first`: no token
 * precedes it in the output. */
int detok_piece(const struct tokenizer *tok, uint32_t id, bool first, struct buf *out,
                struct err *err) MUST_USE;

/* Streaming detokeniser. Emits whole characters only: bytes of an incomplete character are held
 * back until it is complete or detok_finish(); invalid bytes become U+FFFD. Special tokens are
 * skipped unless `keep_special`. */
struct detok {
    const struct tokenizer *tok;
    bool keep_special;
    bool started; /* a token was decoded: leading-space rules no longer apply */
    unsigned char held[4];
    size_t held_len;
};

void detok_init(struct detok *detok, const struct tokenizer *tok, bool keep_special);
int detok_add(struct detok *detok, uint32_t id, struct buf *out, struct err *err) MUST_USE;
int detok_finish(struct detok *detok, struct buf *out, struct err *err) MUST_USE;
