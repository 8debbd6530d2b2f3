/* The components that a tokenizer.json names: normalizer, pre-tokenizer, post-processor, decoder. */
#ifndef BMC_TOK_PARTS_H
#define BMC_TOK_PARTS_H

#include "base/json.h"
#include "text/tok_draft.h"

/* Turns the four components of a tokenizer.json into steps and template of the draft. What is not
 * implemented is refused by its name. `*has_template` when the post-processor has one. */
int parts_parse(struct tok_draft *draft, const json_t *tokenizer, bool *has_template,
                struct err *err) MUST_USE;

/* The pre-tokenizer and decoder "ByteLevel", which vocab.json with merges.txt implies. */
int parts_byte_level(struct tok_draft *draft, bool add_prefix_space, struct err *err) MUST_USE;

/* A true or false at `key`, or `fallback` where there is none. */
int parts_bool(const struct tok_draft *draft, const json_t *object, const char *key, bool fallback,
               bool *value, struct err *err) MUST_USE;

#endif
