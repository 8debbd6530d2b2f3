/* Vocabularies of tiktoken, whose merges follow from the order of the tokens, converted to an
 * equivalent tokenizer.json. */
#pragma once

#include "base/mem.h"

/* Both append JSON text to `out`; `name` is used in errors. It is a tokenizer.json whose model has two
 * members of its own:
 *
 *    {"model": {"type": "BPE", "ignore_merges": true,
 *               "merges_by_id": true,              instead of "merges": all pairs whose union is a token
 *               "vocab_base64": {"AA==": 0, ..}},  instead of "vocab": bytes of the tokens
 *     "added_tokens": .., "pre_tokenizer": .., "decoder": .., "post_processor": ..} */

/* True if a file is not a SentencePiece model but lines of tiktoken. */
bool tiktoken_is(const char *data, size_t size);

/* A tiktoken.model: lines of base64 and an id. `config` is its tokenizer_config.json, of
 * `config_size` bytes, which has the special tokens, and whose class determines the pre-tokenizer. */
int tiktoken_json(struct buf *out, const char *data, size_t size, const char *config,
                  size_t config_size, const char *name, struct err *err) MUST_USE;

/* Mistral's tekken.json. */
int tekken_json(struct buf *out, const char *data, size_t size, const char *name,
                struct err *err) MUST_USE;
