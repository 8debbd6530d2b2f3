/* Parts of the parser of components, one file per kind. To add a component: its name and its function in
 * the table of its kind. */
#ifndef BMC_TOK_PARSER_H
#define BMC_TOK_PARSER_H

#include "base/json.h"
#include "text/tok_draft.h"

/* How far a chain of decoders has come. Each works on what the one before it made, and only in this
 * order is that the same as working token by token. */
enum decode_stage { STAGE_START, STAGE_REPLACED, STAGE_BYTES, STAGE_FUSED, STAGE_STRIPPED };

struct parser {
    struct tok_draft *draft;
    const struct part_list *list;
    unsigned depth;
    bool letters; /* pre-tokenizers have come to texts of letters (letters.h) */
    enum decode_stage stage;
    bool byte_level_decoder;
    bool has_template;
};

/* Adds the steps that do a component's work. */
struct part {
    const char *name;
    int (*parse)(struct parser *, const json_t *, struct err *);
};

struct part_list {
    const char *what;
    const char *members; /* key of a sequence's members */
    const struct part *parts;
    size_t count;
};

extern const struct part_list parts_normalizers, parts_pretokenizers, parts_postprocessors,
    parts_decoders;

/* A component named "Sequence". */
/* A component by its "type", which the list must have. */
int parts_one(struct parser *parser, const json_t *json, struct err *err) MUST_USE;

int parts_sequence(struct parser *parser, const json_t *json, struct err *err) MUST_USE;

/* Behind the last pre-tokenizer. */
int parts_leave_letters(struct parser *parser, struct err *err) MUST_USE;

/* --- values of a component --- */

int parts_string(const struct parser *parser, const json_t *object, const char *key,
                 struct slice *value, struct err *err) MUST_USE;
int parts_count(const struct parser *parser, const json_t *object, const char *key, json_int_t *value,
                struct err *err) MUST_USE;

/* A pattern: {"String": ...} or {"Regex": ...}; the latter is translated into `regex`. */
int parts_pattern(const struct parser *parser, const json_t *part, struct buf *regex,
                  struct slice *pattern, bool *is_regex, struct err *err) MUST_USE;

/* What Metaspace says as a pre-tokenizer and as a decoder. */
enum metaspace_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };
int parts_metaspace(const struct parser *parser, const json_t *json, struct slice *mark,
                    enum metaspace_scheme *scheme, struct err *err) MUST_USE;

#endif
