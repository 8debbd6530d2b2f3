/* The components of tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder. */
#ifndef BMC_TOK_COMPONENTS_H
#define BMC_TOK_COMPONENTS_H

#include "base/json.h"
#include "text/import/tok_writer.h"

/* Compiles the four components into steps and template of the tables. Unsupported ones are
 * errors. *has_template: the post-processor has a template, which adds BOS or EOS. */
int tok_components_parse(struct tok_writer *writer, const json_t *tokenizer, bool *has_template,
                         struct err *err) MUST_USE;

/* Adds pre-tokenizer and decoder "ByteLevel", as implied by vocab.json with merges.txt. */
int component_add_byte_level(struct tok_writer *writer, bool add_prefix_space,
                             struct err *err) MUST_USE;

/* Reads the boolean member `key` of a JSON object; `fallback` if it is missing or null. */
int component_bool(const struct tok_writer *writer, const json_t *object, const char *key,
                   bool fallback, bool *value, struct err *err) MUST_USE;

/* Progress in a chain of decoders: only in this order is decoding token by token equivalent to
 * decoding the whole list. */
enum decode_stage { STAGE_START, STAGE_REPLACED, STAGE_BYTES, STAGE_FUSED, STAGE_STRIPPED };

struct parser {
    struct tok_writer *writer;
    const struct component_list *list;
    unsigned depth;
    bool byte_alphabet; /* pre-tokens are in the byte alphabet now */
    enum decode_stage stage;
    bool byte_level_decoder;
    bool has_template;
};

/* A component's name and parse function, which adds its steps. */
struct component {
    const char *name;
    int (*parse)(struct parser *, const json_t *, struct err *);
};

#endif
