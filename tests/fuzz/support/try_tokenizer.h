/* Uses a tokenizer that was built from untrusted files: it encodes and decodes. */
#ifndef BMC_TRY_TOKENIZER_H
#define BMC_TRY_TOKENIZER_H

#include <stdlib.h>

#include "text/tokenizer/detok.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"

static void try_text(const struct tokenizer *tok, const char *text, size_t len)
{
    struct ids ids = {0};
    struct buf out = {0};
    struct err err;
    struct detok detok;
    detok_init(&detok, tok, false);
    if (tokenizer_encode(tok, text, len, true, &ids, &err) == 0) {
        for (size_t i = 0; i < ids.len; i++) {
            /* Built tables are valid: every id is in the vocabulary. */
            if (ids.id[i] >= tokenizer_vocab(tok) || detok_add(&detok, ids.id[i], &out, &err) < 0)
                abort();
        }
        if (detok_finish(&detok, &out, &err) < 0)
            abort();
    }
    ids_release(&ids);
    buf_release(&out);
}

/* Builds a tokenizer, which then opens and encodes a sample and `text`; or it is refused. */
static void try_tokenizer(const struct tokenizer_source *source, const char *text, size_t size)
{
    static const char sample[] =
        "  Once upon\ta time 12345, <s>I'll \xe4\xbd\xa0\xe5\xa5\xbd e\xcc\x81\r\n\n"
        "<|im_start|>\xf0\x9f\x98\x80  a";
    struct tokenizer *tok = NULL;
    struct buf blob = {0};
    struct err err;
    if (tokenizer_build(source, &blob, &err) == 0) {
        if (tokenizer_open(&tok, blob.data, blob.len, &err) < 0)
            abort();
        try_text(tok, sample, sizeof sample - 1);
        try_text(tok, text, size < 2000 ? size : 2000);
    }
    tokenizer_free(tok);
    buf_release(&blob);
}

#endif
