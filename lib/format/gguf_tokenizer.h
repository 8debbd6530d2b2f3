/* The tokenizer of a GGUF file as the texts of a Hugging Face folder. */
#ifndef BMC_GGUF_TOKENIZER_H
#define BMC_GGUF_TOKENIZER_H

#include "format/gguf.h"

/* Appends a tokenizer.json. `path` names the file.
 *
 * Model "gpt2" is BPE there. Model "llama" has no merges but scores, and becomes
 *
 *   {"bos_id": 1, "add_bos": true, "eos_id": 2, "add_eos": false,
 *    "model": {"type": "SPM",            the pair of the best score is joined
 *              "vocab": [["<unk>", 0, 2], ..],    piece, score, type: 1 normal, 2 unknown, 3 control, 4 user defined,
 *                                         5 unused, 6 byte
 *              "unk_id": 0, "byte_fallback": true, "add_prefix_space": true, "remove_extra_whitespaces": false}} */
int gguf_tokenizer_json(const struct gguf *gguf, const char *path, struct buf *text,
                        struct err *err) MUST_USE;

/* Appends a tokenizer_config.json: the chat template, if there is one. */
int gguf_tokenizer_config(const struct gguf *gguf, struct buf *text, struct err *err) MUST_USE;

#endif
