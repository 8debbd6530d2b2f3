/* Parses normalizers of tokenizer.json, which become normalizer steps of the tokenizer tables. */
#include "text/import/tok_parser.h"
#include "text/import/tok_components.h"

static int add_step(struct parser *parser, enum tok_step_kind kind, uint32_t option, struct err *err)
{
    return tok_writer_add_step(parser->writer, LIST_NORMALIZER, kind, option, NULL, NULL, err);
}

static int parse_unicode(struct parser *parser, const json_t *json, struct err *err)
{
    static const char *const names[FORM_COUNT] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *name = json_string_value(json_object_get(json, "type"));
    uint32_t form = FORM_NFC;
    while (form + 1 < FORM_COUNT && strcmp(names[form], name) != 0)
        form++;
    return add_step(parser, NORMALIZE_UNICODE, form, err);
}

static int parse_strip_accents(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return add_step(parser, NORMALIZE_STRIP_ACCENTS, 0, err);
}

static int parse_lowercase(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return add_step(parser, NORMALIZE_LOWERCASE, 0, err);
}

static int parse_strip(struct parser *parser, const json_t *json, struct err *err)
{
    bool left, right;
    if (component_bool(parser->writer, json, "strip_left", false, &left, err) < 0 ||
        component_bool(parser->writer, json, "strip_right", false, &right, err) < 0)
        return -1;
    return add_step(parser, NORMALIZE_STRIP, (left ? STRIP_LEFT : 0U) | (right ? STRIP_RIGHT : 0U),
                    err);
}

static int parse_precompiled(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice map;
    if (component_string(parser, json, "precompiled_charsmap", &map, err) < 0 ||
        tok_writer_set_charsmap(parser->writer, map, err) < 0)
        return -1;
    return add_step(parser, NORMALIZE_CHARSMAP, 0, err);
}

static int parse_prepend(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice prefix;
    if (component_string(parser, json, "prepend", &prefix, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_NORMALIZER, NORMALIZE_PREPEND, 0, &prefix, NULL,
                               err);
}

static int parse_replace(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern, content;
    struct buf regex = {0};
    bool is_regex;
    int rc = -1;
    if (component_pattern(parser, json, &regex, &pattern, &is_regex, err) == 0 &&
        component_string(parser, json, "content", &content, err) == 0)
        rc = tok_writer_add_step(parser->writer, LIST_NORMALIZER,
                                 is_regex ? NORMALIZE_REPLACE_PATTERN : NORMALIZE_REPLACE, 0, &pattern,
                                 &content, err);
    buf_release(&regex);
    return rc;
}

static const struct component components[] = {
    {"Lowercase", parse_lowercase},
    {"NFC", parse_unicode},
    {"NFD", parse_unicode},
    {"NFKC", parse_unicode},
    {"NFKD", parse_unicode},
    {"Precompiled", parse_precompiled},
    {"Prepend", parse_prepend},
    {"Replace", parse_replace},
    {"Sequence", component_parse_sequence},
    {"Strip", parse_strip},
    {"StripAccents", parse_strip_accents},
};

const struct component_list normalizer_components = {"normalizer", "normalizers", components,
                                                     ARRAY_LEN(components)};
