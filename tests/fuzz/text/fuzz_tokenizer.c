/* Untrusted tokenizer tables: opening, encoding and decoding may fail but do no harm.
 *
 * Input: 2 bytes (little-endian) length of a text, the text, then the block. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/detok.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode_and_decode(const struct tokenizer *tok, const char *text, size_t len)
{
    struct ids ids = {0};
    struct buf out = {0};
    struct err err;
    struct detok detok;
    if (tokenizer_encode(tok, text, len, true, &ids, &err) < 0)
        goto out;
    for (int keep = 0; keep < 2; keep++) {
        detok_init(&detok, tok, keep);
        for (size_t i = 0; i < ids.len; i++)
            if (detok_add(&detok, ids.id[i], &out, &err) < 0)
                goto out;
        if (detok_finish(&detok, &out, &err) < 0)
            goto out;
    }
    for (uint32_t id = 0; id < 600; id++)
        if (tokenizer_piece_printable(tok, id, &out, &err) < 0)
            goto out;
    (void)tokenizer_find(tok, text, len);
    (void)tokenizer_is_special(tok, (uint32_t)len);
out:
    ids_release(&ids);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *tok;
    struct err err;
    if (size < 2)
        return 0;
    size_t len = (size_t)(data[0] | data[1] << 8);
    if (len > size - 2)
        return 0;
    /* An aligned copy of exact size, so that sanitizers detect overreads. */
    size_t block_size = size - 2 - len;
    char *text = malloc(len + 1);
    void *block = malloc(block_size ? block_size : 1);
    if (text && block) {
        memcpy(text, data + 2, len);
        memcpy(block, data + 2 + len, block_size);
        if (tokenizer_open(&tok, block, block_size, &err) == 0) {
            encode_and_decode(tok, text, len);
            tokenizer_free(tok);
        }
    }
    free(text);
    free(block);
    return 0;
}
