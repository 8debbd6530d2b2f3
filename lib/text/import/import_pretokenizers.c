/* Parses pre-tokenizers of tokenizer.json, which become steps of the tokenizer tables.
 *
 * ByteLevel needs no step, since the tables work on bytes. Only if other pre-tokenizers follow it,
 * which expect the byte alphabet, is text converted to it, and back to bytes at the end. */
#include "text/pattern.h"
#include "text/import/tok_parser.h"
#include "text/import/tok_components.h"

/* Adds a step that splits at a regular expression in the dialect of tokenizer.json. */
static int add_split(struct tok_writer *writer, const char *content, uint32_t behavior, struct err *err)
{
    struct buf regex = {0};
    int rc = pattern_translate(content, strlen(content), &regex, err);
    if (rc == 0)
        rc = tok_writer_add_step(writer, LIST_PRETOKENIZER, SPLIT_PATTERN, behavior,
                                 &(struct slice){regex.data, regex.len}, NULL, err);
    buf_release(&regex);
    return rc;
}

static int add_byte_level(struct tok_writer *writer, bool add_prefix_space, bool use_regex,
                          struct err *err)
{
    static const char content[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                                  "\\s+(?!\\S)|\\s+";
    static const struct slice space = {" ", 1};
    if (add_prefix_space && tok_writer_add_step(writer, LIST_PRETOKENIZER, SPLIT_PREFIX, PREFIX_ALWAYS,
                                                &space, NULL, err) < 0)
        return -1;
    if (use_regex && add_split(writer, content, BEHAVIOR_ISOLATED, err) < 0)
        return -1;
    writer->flags |= TOK_BYTE_LEVEL;
    return 0;
}

int component_add_byte_level(struct tok_writer *writer, bool add_prefix_space, struct err *err)
{
    return add_byte_level(writer, add_prefix_space, true, err);
}

/* Called first by each parse function: switches to the byte alphabet if ByteLevel came before. */
static int enter(struct parser *parser, const json_t *json, struct err *err)
{
    static const char *const impossible[] = {"ByteLevel", "Metaspace"};
    const char *name = json_string_value(json_object_get(json, "type"));
    if (!(parser->writer->flags & TOK_BYTE_LEVEL))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(impossible); i++)
        if (strcmp(name, impossible[i]) == 0)
            return err_set(err, "%s: pre_tokenizer \"%s\" after \"ByteLevel\" is not supported",
                           parser->writer->where, name);
    if (parser->byte_alphabet)
        return 0;
    parser->byte_alphabet = true;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_TO_BYTE_ALPHABET, 0, NULL, NULL,
                               err);
}

static int parse_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    bool add_prefix_space, use_regex;
    if (enter(parser, json, err) < 0 ||
        component_bool(parser->writer, json, "add_prefix_space", true, &add_prefix_space, err) < 0 ||
        component_bool(parser->writer, json, "use_regex", true, &use_regex, err) < 0)
        return -1;
    return add_byte_level(parser->writer, add_prefix_space, use_regex, err);
}

int components_leave_byte_alphabet(struct parser *parser, struct err *err)
{
    if (!parser->byte_alphabet)
        return 0;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_FROM_BYTE_ALPHABET, 0, NULL,
                               NULL, err);
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
    if (component_string(parser, json, "behavior", &name, err) < 0 ||
        component_bool(parser->writer, json, "invert", false, &invert, err) < 0)
        return -1;
    for (uint32_t i = 0; i < BEHAVIOR_COUNT; i++)
        if (strcmp(names[i], name.data) == 0) {
            *option = i | (invert ? SPLIT_INVERT : 0U);
            return 0;
        }
    return err_set(err, "%s: unknown behavior \"%s\" of a pre_tokenizer", parser->writer->where,
                   name.data);
}

static int parse_split(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern;
    struct buf regex = {0};
    bool is_regex;
    uint32_t option = 0;
    int rc = -1;
    if (enter(parser, json, err) == 0 &&
        component_pattern(parser, json, &regex, &pattern, &is_regex, err) == 0 &&
        get_behavior(parser, json, &option, err) == 0)
        rc = tok_writer_add_step(parser->writer, LIST_PRETOKENIZER,
                                 is_regex ? SPLIT_PATTERN : SPLIT_TEXT, option, &pattern, NULL, err);
    buf_release(&regex);
    return rc;
}

static int parse_digits(struct parser *parser, const json_t *json, struct err *err)
{
    bool individual;
    if (enter(parser, json, err) < 0 ||
        component_bool(parser->writer, json, "individual_digits", false, &individual, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_DIGITS,
                               individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS, NULL, NULL, err);
}

static int parse_punctuation(struct parser *parser, const json_t *json, struct err *err)
{
    uint32_t option = BEHAVIOR_ISOLATED;
    if (enter(parser, json, err) < 0 ||
        (json_object_get(json, "behavior") && get_behavior(parser, json, &option, err) < 0))
        return -1;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_PUNCTUATION, option, NULL, NULL,
                               err);
}

static int parse_whitespace_split(struct parser *parser, const json_t *json, struct err *err)
{
    return enter(parser, json, err) < 0 ? -1 : add_split(parser->writer, "\\s", BEHAVIOR_REMOVED, err);
}

static int parse_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct tok_writer *writer = parser->writer;
    struct slice mark;
    enum metaspace_scheme scheme;
    bool split;
    if (enter(parser, json, err) < 0 || component_metaspace(parser, json, &mark, &scheme, err) < 0 ||
        component_bool(writer, json, "split", true, &split, err) < 0 ||
        tok_writer_add_step(writer, LIST_PRETOKENIZER, SPLIT_REPLACE, 0, &space, &mark, err) < 0)
        return -1;
    if (scheme != SCHEME_NEVER &&
        tok_writer_add_step(writer, LIST_PRETOKENIZER, SPLIT_PREFIX,
                            scheme == SCHEME_FIRST ? PREFIX_FIRST : PREFIX_ALWAYS, &mark, NULL,
                            err) < 0)
        return -1;
    return split ? tok_writer_add_step(writer, LIST_PRETOKENIZER, SPLIT_TEXT, BEHAVIOR_MERGED_WITH_NEXT,
                                       &mark, NULL, err)
                 : 0;
}

static const struct component components[] = {
    {"ByteLevel", parse_byte_level},
    {"Digits", parse_digits},
    {"Metaspace", parse_metaspace},
    {"Punctuation", parse_punctuation},
    {"Sequence", component_parse_sequence},
    {"Split", parse_split},
    {"WhitespaceSplit", parse_whitespace_split},
};

const struct component_list pretokenizer_components = {"pre_tokenizer", "pretokenizers", components,
                                                       ARRAY_LEN(components)};
