/* The components of tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder. */
#pragma once

#include "base/json.h"
#include "text/import/tok_writer.h"

/* Compiles the four components into steps and template of the tables. Unsupported ones are
 * errors. True: the post-processor has a template, which adds BOS or EOS. */
bool tok_components_parse(struct tok_writer *writer, const json_t *tokenizer);

/* Adds pre-tokenizer and decoder "ByteLevel": a split of its own if `use_regex`. vocab.json with merges.txt
 * implies them. */
void component_add_byte_level(struct tok_writer *writer, bool add_prefix_space, bool use_regex);

/* The boolean member `key` of a JSON object; `fallback` if it is missing or null. */
bool component_bool(struct tok_writer *writer, const json_t *object, const char *key, bool fallback);
