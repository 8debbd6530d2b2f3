/* Converts the tokenizer of a GGUF file to Hugging Face's tokenizer files. */
#pragma once

#include "format/gguf/gguf.h"

/* Appends a tokenizer.json made from the metadata to `text`. `path` is used in errors.
 *
 * Tokenizer model "gpt2" becomes BPE. Model "llama", which has scores instead of merges, becomes
 *
 *    {"bos_id": 1, "add_bos": true, "eos_id": 2, "add_eos": false,
 *     "model": {"type": "SPM",            merge the pair with the best score
 *               "vocab": [["<unk>", 0, 2], ..],    piece, score, type: 1 normal, 2 unknown, 3 control, 4 user defined,
 *                                          5 unused, 6 byte
 *               "unk_id": 0, "byte_fallback": true, "add_prefix_space": true, "remove_extra_whitespaces": false}} */
int gguf_tokenizer_json(const struct gguf *gguf, const char *path, struct buf *text,
                        struct err *err) MUST_USE;

/* Appends a tokenizer_config.json with the chat template, if any. */
int gguf_tokenizer_config(const struct gguf *gguf, struct buf *text, struct err *err) MUST_USE;

/* Values of tokenizer.ggml.token_type. */
enum gguf_token {
    NORMAL_TOKEN = 1,
    UNKNOWN_TOKEN,
    CONTROL_TOKEN,
    USER_TOKEN,
    UNUSED_TOKEN,
    BYTE_TOKEN
};
