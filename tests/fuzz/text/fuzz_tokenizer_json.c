/* Untrusted tokenizer files: whatever can be built also opens, encodes and decodes.
 *
 * Input: tokenizer.json, or, if it starts with '!': vocab.json, merges.txt,
 * tokenizer_config.json, special_tokens_map.json and added_tokens.json, separated by zero bytes. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/support/try_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void split_files(struct tokenizer_source *source, const char *text, size_t size)
{
    struct slice *files[] = {&source->vocab_json, &source->merges_txt, &source->tokenizer_config_json,
                             &source->special_tokens_map_json, &source->added_tokens_json};
    for (size_t i = 0, at = 0; i < ARRAY_LEN(files) && at <= size; i++) {
        const char *end = memchr(text + at, 0, size - at);
        size_t len = end ? (size_t)(end - text) - at : size - at;
        *files[i] = (struct slice){text + at, len};
        at += len + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer_source source = {.folder = "F", .vocab_rows = 2000};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (size > 0 && text[0] == '!')
        split_files(&source, text + 1, size - 1);
    else
        source.tokenizer_json = (struct slice){text, size};
    try_tokenizer(&source, text, size);
    free(text);
    return 0;
}
