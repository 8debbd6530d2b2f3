/* Pre-tokenizers of a tokenizer.json -> steps of the tables. Part of tok_parts.c's tables.
 *
 * ByteLevel is no step: the tables keep bytes. Only where a pre-tokenizer stands behind it, which then
 * sees letters in their place, the text is turned into them, and back in the end. */
#include "text/pattern.h"
#include "text/tok_parser.h"
#include "text/tok_parts.h"

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

int parts_byte_level(struct tok_draft *draft, bool add_prefix_space, struct err *err)
{
    return add_byte_level(draft, add_prefix_space, true, err);
}

/* Comes before any other pre-tokenizer. */
static int enter(struct parser *parser, const json_t *json, struct err *err)
{
    static const char *const impossible[] = {"ByteLevel", "Metaspace"};
    const char *name = json_string_value(json_object_get(json, "type"));
    if (!(parser->draft->flags & TOK_BYTE_LEVEL))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(impossible); i++)
        if (strcmp(name, impossible[i]) == 0)
            return err_set(err, "%s: pre_tokenizer \"%s\" behind \"ByteLevel\" is not implemented",
                           parser->draft->where, name);
    if (parser->letters)
        return 0;
    parser->letters = true;
    return tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_LETTERS, 0, NULL, NULL, err);
}

static int parse_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    bool add_prefix_space, use_regex;
    if (enter(parser, json, err) < 0 ||
        parts_bool(parser->draft, json, "add_prefix_space", true, &add_prefix_space, err) < 0 ||
        parts_bool(parser->draft, json, "use_regex", true, &use_regex, err) < 0)
        return -1;
    return add_byte_level(parser->draft, add_prefix_space, use_regex, err);
}

int parts_leave_letters(struct parser *parser, struct err *err)
{
    if (!parser->letters)
        return 0;
    return tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_BYTES, 0, NULL, NULL, err);
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
    if (parts_string(parser, json, "behavior", &name, err) < 0 ||
        parts_bool(parser->draft, json, "invert", false, &invert, err) < 0)
        return -1;
    for (uint32_t i = 0; i < BEHAVIOR_COUNT; i++)
        if (strcmp(names[i], name.data) == 0) {
            *option = i | (invert ? SPLIT_INVERT : 0U);
            return 0;
        }
    return err_set(err, "%s: behavior \"%s\" of a pre_tokenizer is not known", parser->draft->where,
                   name.data);
}

static int parse_split(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern;
    struct buf regex = {0};
    bool is_regex;
    uint32_t option = 0;
    int rc = -1;
    if (enter(parser, json, err) < 0 ||
        parts_pattern(parser, json, &regex, &pattern, &is_regex, err) < 0 ||
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
    if (enter(parser, json, err) < 0 ||
        parts_bool(parser->draft, json, "individual_digits", false, &individual, err) < 0)
        return -1;
    return tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_DIGITS,
                              individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS, NULL, NULL, err);
}

static int parse_punctuation(struct parser *parser, const json_t *json, struct err *err)
{
    uint32_t option = BEHAVIOR_ISOLATED;
    if (enter(parser, json, err) < 0 ||
        (json_object_get(json, "behavior") && get_behavior(parser, json, &option, err) < 0))
        return -1;
    return tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_PUNCTUATION, option, NULL, NULL,
                              err);
}

static int parse_whitespace_split(struct parser *parser, const json_t *json, struct err *err)
{
    static const char spaces[] = "\\s";
    struct buf regex = {0};
    int rc = -1;
    if (enter(parser, json, err) < 0 || pattern_translate(spaces, sizeof spaces - 1, &regex, err) < 0)
        goto out;
    struct slice pattern = {regex.data, regex.len};
    rc = tok_draft_add_step(parser->draft, LIST_PRETOKENIZER, SPLIT_PATTERN, BEHAVIOR_REMOVED, &pattern,
                            NULL, err);
out:
    buf_release(&regex);
    return rc;
}

static int parse_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct tok_draft *draft = parser->draft;
    struct slice mark;
    enum metaspace_scheme scheme;
    bool split;
    if (enter(parser, json, err) < 0 || parts_metaspace(parser, json, &mark, &scheme, err) < 0 ||
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

static const struct part parts[] = {
    {"ByteLevel", parse_byte_level},
    {"Digits", parse_digits},
    {"Metaspace", parse_metaspace},
    {"Punctuation", parse_punctuation},
    {"Sequence", parts_sequence},
    {"Split", parse_split},
    {"WhitespaceSplit", parse_whitespace_split},
};

const struct part_list parts_pretokenizers = {"pre_tokenizer", "pretokenizers", parts,
                                              ARRAY_LEN(parts)};
