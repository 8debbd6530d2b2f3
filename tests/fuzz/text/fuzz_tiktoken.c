/* Vocabularies of tiktoken: what is accepted becomes a tokenizer that encodes and decodes, or is refused.
 *
 * Input: tekken.json, or, if it starts with '!': tokenizer_config.json, a zero byte and
 * tiktoken.model. */
#include <stdlib.h>
#include <string.h>

#include "format/hf/tiktoken.h"
#include "tests/fuzz/support/try_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf made = {0};
    struct err err;
    const char *text = (const char *)data;
    const char *end = size && *text == '!' ? memchr(text, 0, size) : NULL;
    const int rc = end ? tiktoken_json(&made, end + 1, size - (size_t)(end + 1 - text), text + 1,
                                       (size_t)(end - text - 1), "fuzz", &err)
                       : tekken_json(&made, text, size, "fuzz", &err);
    if (rc == 0) {
        const struct tokenizer_source source = {
            .folder = "F", .tokenizer_json = {made.data, made.len}, .vocab_rows = 2000};
        try_tokenizer(&source, text, size);
    }
    buf_release(&made);
    return 0;
}
