/* Parser of tokenizer.json components. To add a component, add its name and parse function to
 * the table of its kind. */
#ifndef BMC_TOK_PARSER_H
#define BMC_TOK_PARSER_H

#include "base/json.h"
#include "text/import/tok_writer.h"

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

struct component_list {
    const char *what;
    const char *members; /* key under which a Sequence lists its components */
    const struct component *components;
    size_t count;
};

extern const struct component_list normalizer_components, pretokenizer_components,
    postprocessor_components, decoder_components;

/* Parses a component with the parse function for its "type". */
int component_parse(struct parser *parser, const json_t *json, struct err *err) MUST_USE;

int component_parse_sequence(struct parser *parser, const json_t *json, struct err *err) MUST_USE;

/* Adds the step that converts pre-tokens from the byte alphabet to bytes, if an earlier step
 * converted them to it. Call after the last pre-tokenizer. */
int components_leave_byte_alphabet(struct parser *parser, struct err *err) MUST_USE;

int component_string(const struct parser *parser, const json_t *object, const char *key,
                     struct slice *value, struct err *err) MUST_USE;
int component_count(const struct parser *parser, const json_t *object, const char *key,
                    json_int_t *value, struct err *err) MUST_USE;

/* Reads "pattern": {"String": ...} or {"Regex": ...}; a regex is translated to PCRE2 in `regex`. */
int component_pattern(const struct parser *parser, const json_t *json, struct buf *regex,
                      struct slice *pattern, bool *is_regex, struct err *err) MUST_USE;

/* Reads what Metaspace has as pre-tokenizer and as decoder: the character for spaces, and which
 * pre-tokens it is prepended to. */
enum metaspace_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };
int component_metaspace(const struct parser *parser, const json_t *json, struct slice *mark,
                        enum metaspace_scheme *scheme, struct err *err) MUST_USE;

#endif
