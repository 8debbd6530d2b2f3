/* Components of a tokenizer.json -> steps of the tables. Part of building a tokenizer.
 *
 * One table per kind of component: name -> parse function. A parse function adds the steps that do the
 * component's work; what runs a step is in pretok.c and detok.c. */
#include "text/tok_parts.h"

#include "text/pattern.h"
#include "text/utf8.h"

enum { MAX_DEPTH = 4 }; /* of sequences inside sequences */

/* How far a chain of decoders has come. Each works on what the one before it made, and only in this
 * order is that the same as working token by token. */
enum stage { STAGE_START, STAGE_REPLACED, STAGE_BYTES, STAGE_FUSED, STAGE_STRIPPED };

struct parser {
    struct tok_draft *draft;
    const struct part_list *list;
    unsigned depth;
    enum stage stage;
    bool byte_level_decoder;
    bool has_template;
};

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

static int parse_part(struct parser *parser, const json_t *json, struct err *err);

/* --- values --- */

int parts_bool(const struct tok_draft *draft, const json_t *object, const char *key, bool fallback,
               bool *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    *value = fallback;
    if (!found || json_is_null(found))
        return 0;
    if (!json_is_boolean(found))
        return err_set(err, "%s: \"%s\" is %s, expected true or false", draft->where, key,
                       json_type_name(found));
    *value = json_is_true(found);
    return 0;
}

static int get_string(const struct parser *parser, const json_t *object, const char *key,
                      struct slice *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_string(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected a string", parser->draft->where, key,
                       parser->list->what, json_type_name(found));
    *value = (struct slice){json_string_value(found), json_string_length(found)};
    return 0;
}

static int get_count(const struct parser *parser, const json_t *object, const char *key,
                     json_int_t *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_integer(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected an integer", parser->draft->where, key,
                       parser->list->what, json_type_name(found));
    *value = json_integer_value(found);
    return 0;
}

/* A pattern: {"String": ...} or {"Regex": ...}; the latter is translated into `regex`. */
static int get_pattern(const struct parser *parser, const json_t *part, struct buf *regex,
                       struct slice *pattern, bool *is_regex, struct err *err)
{
    const json_t *object = json_object_get(part, "pattern");
    *is_regex = json_object_get(object, "Regex") != NULL;
    if (get_string(parser, object, *is_regex ? "Regex" : "String", pattern, err) < 0)
        return -1;
    if (!*is_regex)
        return pattern->size ? 0
                             : err_set(err, "%s: an empty pattern of a %s is not implemented",
                                       parser->draft->where, parser->list->what);
    if (pattern->size > TOK_MAX_PATTERN)
        return err_set(err, "%s: a pattern of %zu bytes is longer than %d", parser->draft->where,
                       pattern->size, (int)TOK_MAX_PATTERN);
    if (pattern_translate(pattern->data, pattern->size, regex, err) < 0)
        return err_prefix(err, "%s", parser->draft->where);
    *pattern = (struct slice){regex->data ? regex->data : "", regex->len};
    return 0;
}

static int parse_sequence(struct parser *parser, const json_t *json, struct err *err)
{
    const json_t *members = json_object_get(json, parser->list->members);
    if (!json_is_array(members))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected an array", parser->draft->where,
                       parser->list->members, parser->list->what, json_type_name(members));
    if (parser->depth == MAX_DEPTH)
        return err_set(err, "%s: more than %d %ss inside each other", parser->draft->where,
                       (int)MAX_DEPTH, parser->list->what);
    parser->depth++;
    for (size_t i = 0; i < json_array_size(members); i++)
        if (parse_part(parser, json_array_get(members, i), err) < 0)
            return -1;
    parser->depth--;
    return 0;
}

/* --- normalizers --- */

static int parse_nfc(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return tok_draft_add_step(parser->draft, LIST_NORMALIZER, NORMALIZE_NFC, 0, NULL, NULL, err);
}

static int parse_prepend(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice prefix;
    if (get_string(parser, json, "prepend", &prefix, err) < 0)
        return -1;
    return tok_draft_add_step(parser->draft, LIST_NORMALIZER, NORMALIZE_PREPEND, 0, &prefix, NULL, err);
}

static int parse_replace(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern, content;
    struct buf regex = {0};
    bool is_regex;
    int rc = -1;
    if (get_pattern(parser, json, &regex, &pattern, &is_regex, err) < 0 ||
        get_string(parser, json, "content", &content, err) < 0)
        goto out;
    rc = tok_draft_add_step(parser->draft, LIST_NORMALIZER,
                            is_regex ? NORMALIZE_REPLACE_PATTERN : NORMALIZE_REPLACE, 0, &pattern,
                            &content, err);
out:
    buf_release(&regex);
    return rc;
}

/* --- pre-tokenizers --- */

static int add_byte_level(struct tok_draft *draft, bool add_prefix_space, bool use_regex,
                          struct err *err)
{
    static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                                "\\s+(?!\\S)|\\s+";
    static const struct slice space = {" ", 1};
    struct buf regex = {0};
    int rc = -1;
    if (add_prefix_space && tok_draft_add_step(draft, LIST_PRETOKENIZER, SPLIT_PREFIX, PREFIX_ALWAYS,
                                               &space, NULL, err) < 0)
        goto out;
    if (use_regex) {
        if (pattern_translate(words, sizeof words - 1, &regex, err) < 0)
            goto out;
        struct slice pattern = {regex.data, regex.len};
        if (tok_draft_add_step(draft, LIST_PRETOKENIZER, SPLIT_PATTERN, BEHAVIOR_ISOLATED, &pattern,
                               NULL, err) < 0)
            goto out;
    }
    draft->flags |= TOK_BYTE_LEVEL;
    rc = 0;
out:
    buf_release(&regex);
    return rc;
}

static int parse_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    bool add_prefix_space, use_regex;
    if (parts_bool(parser->draft, json, "add_prefix_space", true, &add_prefix_space, err) < 0 ||
        parts_bool(parser->draft, json, "use_regex", true, &use_regex, err) < 0)
        return -1;
    return add_byte_level(parser->draft, add_prefix_space, use_regex, err);
}

static int get_behavior(const struct parser *parser, const json_t *json, uint32_t *option,
                        struct err *err)
{
    static const char *const names[BEHAVIOR_COUNT] = {
        [BEHAVIOR_ISOLATED] = "Isolated",
        [BEHAVIOR_REMOVED] = "Removed",
        [BEHAVIOR_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [BEHAVIOR_MERGED_WITH_NEXT] = "MergedWithNext",
        [BEHAVIOR_CONTIGUOUS] = "Contiguous",
    };
    struct slice name;
    bool invert;
    if (get_string(parser, json, "behavior", &name, err) < 0 ||
        parts_bool(parser->draft, json, "invert", false, &invert, err) < 0)
        return -1;
    for (uint32_t i = 0; i < BEHAVIOR_COUNT; i++)
        if (strcmp(names[i], name.data) == 0) {
            *option = i | (invert ? SPLIT_INVERT : 0U);
            return 0;
        }
    return err_set(err, "%s: behavior \"%s\" of a pre_tokenizer \"Split\" is not known",
                   parser->draft->where, name.data);
}

static int parse_split(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern;
    struct buf regex = {0};
    bool is_regex;
    uint32_t option = 0;
    int rc = -1;
    if (get_pattern(parser, json, &regex, &pattern, &is_regex, err) < 0 ||
        get_behavior(parser, json, &option, err) < 0)
        goto out;
    rc = tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, is_regex ? SPLIT_PATTERN : SPLIT_TEXT,
                            option, &pattern, NULL, err);
out:
    buf_release(&regex);
    return rc;
}

static int parse_digits(struct parser *parser, const json_t *json, struct err *err)
{
    bool individual;
    if (parts_bool(parser->draft, json, "individual_digits", false, &individual, err) < 0)
        return -1;
    return tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_DIGITS,
                              individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS, NULL, NULL, err);
}

enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

/* What Metaspace says as a pre-tokenizer and as a decoder. */
static int get_metaspace(const struct parser *parser, const json_t *json, struct slice *mark,
                         enum scheme *scheme, struct err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    struct slice name = {"always", 6};
    bool add_prefix_space;
    if (get_string(parser, json, "replacement", mark, err) < 0 ||
        parts_bool(parser->draft, json, "add_prefix_space", true, &add_prefix_space, err) < 0)
        return -1;
    if (!mark->size || utf8_step(mark->data, mark->size) != (int)mark->size)
        return err_set(err, "%s: \"replacement\" of a Metaspace is \"%s\", expected one character",
                       parser->draft->where, mark->data);
    if (json_object_get(json, "prepend_scheme") &&
        get_string(parser, json, "prepend_scheme", &name, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name.data) == 0) {
            *scheme = add_prefix_space ? (enum scheme)i : SCHEME_NEVER;
            return 0;
        }
    return err_set(err, "%s: prepend_scheme \"%s\" of a Metaspace is not known", parser->draft->where,
                   name.data);
}

static int parse_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct tok_draft *draft = parser->draft;
    struct slice mark;
    enum scheme scheme;
    bool split;
    if (get_metaspace(parser, json, &mark, &scheme, err) < 0 ||
        parts_bool(draft, json, "split", true, &split, err) < 0 ||
        tok_draft_add_step(draft, LIST_PRETOKENIZER, SPLIT_REPLACE, 0, &space, &mark, err) < 0)
        return -1;
    if (scheme != SCHEME_NEVER &&
        tok_draft_add_step(draft, LIST_PRETOKENIZER, SPLIT_PREFIX,
                           scheme == SCHEME_FIRST ? PREFIX_FIRST : PREFIX_ALWAYS, &mark, NULL, err) < 0)
        return -1;
    return split ? tok_draft_add_step(draft, LIST_PRETOKENIZER, SPLIT_TEXT, BEHAVIOR_MERGED_WITH_NEXT,
                                      &mark, NULL, err)
                 : 0;
}

/* --- post-processors --- */

static int parse_no_effect(struct parser *parser, const json_t *json, struct err *err)
{
    (void)parser;
    (void)json;
    (void)err;
    return 0;
}

/* Appends the ids of a special token that a template names. */
static int add_template_ids(const struct parser *parser, const json_t *specials, const json_t *piece,
                            struct ids *ids, struct err *err)
{
    const struct tok_draft *draft = parser->draft;
    struct slice name;
    if (get_string(parser, piece, "id", &name, err) < 0)
        return -1;
    const json_t *list = json_object_get(json_object_get(specials, name.data), "ids");
    if (!json_is_array(list))
        return err_set(err, "%s: the template's \"%s\" has no ids", draft->where, name.data);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || (uint64_t)value >= draft->ids || !draft->token[value].flags)
            return err_set(err, "%s: the template's \"%s\" has id %lld, which no token has",
                           draft->where, name.data, (long long)value);
        if (ids_add(ids, (uint32_t)value, err) < 0)
            return -1;
    }
    return 0;
}

/* Puts what this template adds around what an earlier one added. */
static int wrap_template(struct tok_draft *draft, struct ids *prefix, const struct ids *suffix,
                         struct err *err)
{
    for (size_t i = 0; i < draft->prefix.len; i++)
        if (ids_add(prefix, draft->prefix.id[i], err) < 0)
            return -1;
    struct ids inner = draft->prefix;
    draft->prefix = *prefix;
    *prefix = inner;
    for (size_t i = 0; i < suffix->len; i++)
        if (ids_add(&draft->suffix, suffix->id[i], err) < 0)
            return -1;
    return 0;
}

static int parse_template(struct parser *parser, const json_t *json, struct err *err)
{
    const json_t *single = json_object_get(json, "single");
    const json_t *specials = json_object_get(json, "special_tokens");
    struct ids prefix = {0}, suffix = {0};
    size_t texts = 0;
    int rc = -1;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *name = json_object_get(json_object_get(piece, "Sequence"), "id");
        if (special) {
            if (add_template_ids(parser, specials, special, texts ? &suffix : &prefix, err) < 0)
                goto out;
        } else if (json_is_string(name) && strcmp(json_string_value(name), "A") == 0) {
            texts++;
        } else {
            err_set(err, "%s: part %zu of the template is neither a SpecialToken nor Sequence A",
                    parser->draft->where, i);
            goto out;
        }
    }
    if (texts != 1) {
        err_set(err, "%s: the template for a single text has %zu places for it, expected 1",
                parser->draft->where, texts);
        goto out;
    }
    parser->has_template = true;
    rc = wrap_template(parser->draft, &prefix, &suffix, err);
out:
    ids_release(&prefix);
    ids_release(&suffix);
    return rc;
}

/* --- decoders --- */

static int advance(struct parser *parser, const char *name, enum stage from, enum stage to,
                   struct err *err)
{
    if (parser->stage > from)
        return err_set(err, "%s: decoder \"%s\" at this place of a Sequence is not implemented",
                       parser->draft->where, name);
    parser->stage = to;
    return 0;
}

static int parse_decode_bytes(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    if (advance(parser, "ByteFallback", STAGE_REPLACED, STAGE_BYTES, err) < 0)
        return -1;
    return tok_draft_add_step(parser->draft, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL, err);
}

static int parse_decode_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    parser->byte_level_decoder = true;
    return advance(parser, "ByteLevel", STAGE_START, STAGE_FUSED, err);
}

static int parse_decode_fuse(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return advance(parser, "Fuse", STAGE_FUSED, STAGE_FUSED, err);
}

static int parse_decode_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct slice mark;
    enum scheme scheme;
    if (advance(parser, "Metaspace", STAGE_REPLACED, STAGE_REPLACED, err) < 0 ||
        get_metaspace(parser, json, &mark, &scheme, err) < 0)
        return -1;
    return tok_draft_add_step(parser->draft, LIST_DECODER, DECODE_METASPACE, scheme != SCHEME_NEVER,
                              &mark, &space, err);
}

static int parse_decode_replace(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern, content;
    struct buf regex = {0};
    bool is_regex;
    int rc = -1;
    if (advance(parser, "Replace", STAGE_REPLACED, STAGE_REPLACED, err) < 0 ||
        get_pattern(parser, json, &regex, &pattern, &is_regex, err) < 0 ||
        get_string(parser, json, "content", &content, err) < 0)
        goto out;
    if (is_regex) {
        err_set(err, "%s: decoder \"Replace\" with a Regex is not implemented", parser->draft->where);
        goto out;
    }
    rc = tok_draft_add_step(parser->draft, LIST_DECODER, DECODE_REPLACE, 0, &pattern, &content, err);
out:
    buf_release(&regex);
    return rc;
}

static int parse_decode_strip(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice content;
    json_int_t start, stop;
    if (get_string(parser, json, "content", &content, err) < 0 ||
        get_count(parser, json, "start", &start, err) < 0 ||
        get_count(parser, json, "stop", &stop, err) < 0)
        return -1;
    if (parser->stage != STAGE_FUSED || content.size != 1 || start < 0 || start > 1 || stop != 0)
        return err_set(err,
                       "%s: decoder \"Strip\" is only implemented for one character at the start, "
                       "behind a \"Fuse\"",
                       parser->draft->where);
    parser->stage = STAGE_STRIPPED;
    return start ? tok_draft_add_step(parser->draft, LIST_DECODER, DECODE_STRIP, 0, &content, NULL, err)
                 : 0;
}

/* --- tables --- */

static const struct part normalizers[] = {
    {"NFC", parse_nfc},
    {"Prepend", parse_prepend},
    {"Replace", parse_replace},
    {"Sequence", parse_sequence},
};

static const struct part pretokenizers[] = {
    {"ByteLevel", parse_byte_level}, {"Digits", parse_digits}, {"Metaspace", parse_metaspace},
    {"Sequence", parse_sequence},    {"Split", parse_split},
};

static const struct part postprocessors[] = {
    {"ByteLevel", parse_no_effect},
    {"Sequence", parse_sequence},
    {"TemplateProcessing", parse_template},
};

static const struct part decoders[] = {
    {"ByteFallback", parse_decode_bytes}, {"ByteLevel", parse_decode_byte_level},
    {"Fuse", parse_decode_fuse},          {"Metaspace", parse_decode_metaspace},
    {"Replace", parse_decode_replace},    {"Sequence", parse_sequence},
    {"Strip", parse_decode_strip},
};

/* In the order of parsing: the template needs nothing of the others, the rest follows the text. */
static const struct part_list lists[] = {
    {"normalizer", "normalizers", normalizers, ARRAY_LEN(normalizers)},
    {"pre_tokenizer", "pretokenizers", pretokenizers, ARRAY_LEN(pretokenizers)},
    {"post_processor", "processors", postprocessors, ARRAY_LEN(postprocessors)},
    {"decoder", "decoders", decoders, ARRAY_LEN(decoders)},
};

static int refuse_part(const struct parser *parser, const char *name, struct err *err)
{
    struct buf names = {0};
    for (size_t i = 0; i < parser->list->count; i++)
        if (buf_addf(&names, err, "%s%s", i ? ", " : "", parser->list->parts[i].name) < 0)
            goto out;
    err_set(err, "%s: %s \"%s\" is not implemented; implemented are %s", parser->draft->where,
            parser->list->what, name, names.data);
out:
    buf_release(&names);
    return -1;
}

static int parse_part(struct parser *parser, const json_t *json, struct err *err)
{
    const json_t *type = json_object_get(json, "type");
    if (!json_is_string(type))
        return err_set(err, "%s: a %s has no \"type\"", parser->draft->where, parser->list->what);
    const char *name = json_string_value(type);
    if (parser->list == &lists[LIST_PRETOKENIZER] && (parser->draft->flags & TOK_BYTE_LEVEL))
        return err_set(err, "%s: pre_tokenizer \"%s\" behind \"ByteLevel\" is not implemented",
                       parser->draft->where, name);
    for (size_t i = 0; i < parser->list->count; i++)
        if (strcmp(parser->list->parts[i].name, name) == 0)
            return parser->list->parts[i].parse(parser, json, err);
    return refuse_part(parser, name, err);
}

int parts_parse(struct tok_draft *draft, const json_t *tokenizer, bool *has_template, struct err *err)
{
    struct parser parser = {.draft = draft};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *part = json_object_get(tokenizer, lists[i].what);
        parser.list = &lists[i];
        if (part && !json_is_null(part) && parse_part(&parser, part, err) < 0)
            return -1;
    }
    bool byte_level = (draft->flags & TOK_BYTE_LEVEL) != 0;
    if (parser.stage == STAGE_START)
        return err_set(err, "%s: a tokenizer without a decoder is not implemented", draft->where);
    if (byte_level != parser.byte_level_decoder)
        return err_set(err, "%s: a %s \"ByteLevel\" without a %s \"ByteLevel\" is not implemented",
                       draft->where, byte_level ? "pre_tokenizer" : "decoder",
                       byte_level ? "decoder" : "pre_tokenizer");
    *has_template = parser.has_template;
    return 0;
}

int parts_byte_level(struct tok_draft *draft, bool add_prefix_space, struct err *err)
{
    return add_byte_level(draft, add_prefix_space, true, err);
}
