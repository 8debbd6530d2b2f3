/* Untrusted tokenizer files: whatever can be built also opens, encodes and decodes.
 *
 * Input: tokenizer.json, or, if it starts with '!': vocab.json, merges.txt,
 * tokenizer_config.json and special_tokens_map.json, separated by zero bytes. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/detok.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void split_files(struct tokenizer_source *source, const char *text, size_t size)
{
    struct slice *files[] = {&source->vocab_json, &source->merges_txt, &source->tokenizer_config_json,
                             &source->special_tokens_map_json};
    for (size_t i = 0, at = 0; i < ARRAY_LEN(files) && at <= size; i++) {
        const char *end = memchr(text + at, 0, size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        *files[i] = (struct slice){text + at, len};
        at += len + 1;
    }
}

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char sample[] =
        "  Once upon\ta time 12345, <s>I'll \xe4\xbd\xa0\xe5\xa5\xbd e\xcc\x81\r\n\n"
        "<|im_start|>\xf0\x9f\x98\x80  a";
    struct tokenizer_source source = {.folder = "F", .vocab_rows = 2000};
    struct tokenizer *tok = NULL;
    struct buf blob = {0};
    struct err err;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (size > 0 && text[0] == '!')
        split_files(&source, text + 1, size - 1);
    else
        source.tokenizer_json = (struct slice){text, size};
    if (tokenizer_build(&source, &blob, &err) == 0) {
        if (tokenizer_open(&tok, blob.data, blob.len, &err) < 0)
            abort();
        try_text(tok, sample, sizeof sample - 1);
        try_text(tok, text, size < 2000 ? size : 2000);
    }
    tokenizer_free(tok);
    buf_release(&blob);
    free(text);
    return 0;
}
