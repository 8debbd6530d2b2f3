/* Compiles components of tokenizer.json to steps of the tables. Each kind of component has a table of names
 * and parsers below; steps are executed in tok_steps.c and detok.c. */
#include "text/import/tok_components.h"

#include "text/pattern.h"
#include "text/utf8.h"

/* ---- parsing tokenizer.json components: their members, and sequences ---- */

struct component_list {
    const char *what;
    const char *members; /* key under which a Sequence lists its components */
    const struct component *components;
    size_t count;
};

/* Reads what Metaspace has as pre-tokenizer and as decoder: the character for spaces, and which
 * pre-tokens it is prepended to. */
enum metaspace_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

enum { MAX_DEPTH = 4 }; /* maximum nesting of components of type Sequence */

int component_bool(const struct tok_writer *writer, const json_t *object, const char *key,
                   bool fallback, bool *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    *value = fallback;
    if (!found || json_is_null(found))
        return 0;
    if (!json_is_boolean(found))
        return err_set(err, "%s: \"%s\" is %s, expected true or false", writer->where, key,
                       json_type_name(found));
    *value = json_is_true(found);
    return 0;
}

static int component_string(const struct parser *parser, const json_t *object, const char *key,
                            struct slice *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_string(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected a string", parser->writer->where, key,
                       parser->list->what, json_type_name(found));
    *value = (struct slice){json_string_value(found), json_string_length(found)};
    return 0;
}

static int component_count(const struct parser *parser, const json_t *object, const char *key,
                           json_int_t *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_integer(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected an integer", parser->writer->where, key,
                       parser->list->what, json_type_name(found));
    *value = json_integer_value(found);
    return 0;
}

/* Reads "pattern": {"String": ...} or {"Regex": ...}; a regex is translated to PCRE2 in `regex`. */
static int component_pattern(const struct parser *parser, const json_t *json, struct buf *regex,
                             struct slice *pattern, bool *is_regex, struct err *err)
{
    const json_t *object = json_object_get(json, "pattern");
    *is_regex = json_object_get(object, "Regex") != NULL;
    if (component_string(parser, object, *is_regex ? "Regex" : "String", pattern, err) < 0)
        return -1;
    if (!*is_regex)
        return pattern->size ? 0
                             : err_set(err, "%s: an empty pattern of a %s is not supported",
                                       parser->writer->where, parser->list->what);
    if (pattern->size > TOK_MAX_PATTERN)
        return err_set(err, "%s: a pattern of %zu bytes is longer than %d", parser->writer->where,
                       pattern->size, (int)TOK_MAX_PATTERN);
    if (pattern_translate(pattern->data, pattern->size, regex, err) < 0)
        return err_prefix(err, "%s", parser->writer->where);
    *pattern = (struct slice){buf_text(regex), regex->len};
    return 0;
}

static int component_metaspace(const struct parser *parser, const json_t *json, struct slice *mark,
                               enum metaspace_scheme *scheme, struct err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    struct slice name = {"always", 6};
    bool add_prefix_space;
    if (component_string(parser, json, "replacement", mark, err) < 0 ||
        component_bool(parser->writer, json, "add_prefix_space", true, &add_prefix_space, err) < 0)
        return -1;
    if (!mark->size || utf8_step(mark->data, mark->size) != (int)mark->size)
        return err_set(err, "%s: \"replacement\" of a Metaspace is \"%s\", expected one character",
                       parser->writer->where, mark->data);
    if (json_object_get(json, "prepend_scheme") &&
        component_string(parser, json, "prepend_scheme", &name, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name.data) == 0) {
            *scheme = add_prefix_space ? (enum metaspace_scheme)i : SCHEME_NEVER;
            return 0;
        }
    return err_set(err, "%s: unknown prepend_scheme \"%s\" of a Metaspace", parser->writer->where,
                   name.data);
}

static int refuse_component(const struct parser *parser, const char *name, struct err *err)
{
    struct buf names = {0};
    for (size_t i = 0; i < parser->list->count; i++)
        if (buf_addf(&names, err, "%s%s", i ? ", " : "", parser->list->components[i].name) < 0)
            goto out;
    err_set(err, "%s: %s \"%s\" is not supported; supported are %s", parser->writer->where,
            parser->list->what, name, names.data);
out:
    buf_release(&names);
    return -1;
}

/* Parses a component with the parse function for its "type". */
static int component_parse(struct parser *parser, const json_t *json, struct err *err)
{
    const json_t *type = json_object_get(json, "type");
    if (!json_is_string(type))
        return err_set(err, "%s: a %s has no \"type\"", parser->writer->where, parser->list->what);
    const char *name = json_string_value(type);
    for (size_t i = 0; i < parser->list->count; i++)
        if (strcmp(parser->list->components[i].name, name) == 0)
            return parser->list->components[i].parse(parser, json, err);
    return refuse_component(parser, name, err);
}

static int component_parse_sequence(struct parser *parser, const json_t *json, struct err *err)
{
    const json_t *members = json_object_get(json, parser->list->members);
    if (!json_is_array(members))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected an array", parser->writer->where,
                       parser->list->members, parser->list->what, json_type_name(members));
    if (parser->depth == MAX_DEPTH)
        return err_set(err, "%s: more than %d nested %ss", parser->writer->where, (int)MAX_DEPTH,
                       parser->list->what);
    parser->depth++;
    for (size_t i = 0; i < json_array_size(members); i++)
        if (component_parse(parser, json_array_get(members, i), err) < 0)
            return -1;
    parser->depth--;
    return 0;
}

/* Parses normalizers of tokenizer.json, which become normalizer steps of the tokenizer tables. */

static int add_normalizer(struct parser *parser, enum tok_step_kind kind, uint32_t option,
                          struct err *err)
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
    return add_normalizer(parser, NORMALIZE_UNICODE, form, err);
}

static int parse_strip_accents(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return add_normalizer(parser, NORMALIZE_STRIP_ACCENTS, 0, err);
}

static int parse_lowercase(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return add_normalizer(parser, NORMALIZE_LOWERCASE, 0, err);
}

static int parse_strip(struct parser *parser, const json_t *json, struct err *err)
{
    bool left, right;
    if (component_bool(parser->writer, json, "strip_left", false, &left, err) < 0 ||
        component_bool(parser->writer, json, "strip_right", false, &right, err) < 0)
        return -1;
    return add_normalizer(parser, NORMALIZE_STRIP,
                          (left ? STRIP_LEFT : 0U) | (right ? STRIP_RIGHT : 0U), err);
}

static int parse_precompiled(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice map;
    if (component_string(parser, json, "precompiled_charsmap", &map, err) < 0 ||
        tok_writer_set_charsmap(parser->writer, map, err) < 0)
        return -1;
    return add_normalizer(parser, NORMALIZE_CHARSMAP, 0, err);
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

static const struct component normalizers[] = {
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

const struct component_list normalizer_components = {"normalizer", "normalizers", normalizers,
                                                     ARRAY_LEN(normalizers)};

/* Parses pre-tokenizers of tokenizer.json, which become steps of the tokenizer tables.
 *
 * ByteLevel needs no step, since the tables work on bytes. Only if other pre-tokenizers follow it,
 * which expect the byte alphabet, is text converted to it, and back to bytes at the end. */

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
static int enter_pretokenizer(struct parser *parser, const json_t *json, struct err *err)
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
    if (enter_pretokenizer(parser, json, err) < 0 ||
        component_bool(parser->writer, json, "add_prefix_space", true, &add_prefix_space, err) < 0 ||
        component_bool(parser->writer, json, "use_regex", true, &use_regex, err) < 0)
        return -1;
    return add_byte_level(parser->writer, add_prefix_space, use_regex, err);
}

/* Adds the step that converts pre-tokens from the byte alphabet to bytes, if an earlier step
 * converted them to it. Call after the last pre-tokenizer. */
static int components_leave_byte_alphabet(struct parser *parser, struct err *err)
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
    if (enter_pretokenizer(parser, json, err) == 0 &&
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
    if (enter_pretokenizer(parser, json, err) < 0 ||
        component_bool(parser->writer, json, "individual_digits", false, &individual, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_DIGITS,
                               individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS, NULL, NULL, err);
}

static int parse_punctuation(struct parser *parser, const json_t *json, struct err *err)
{
    uint32_t option = BEHAVIOR_ISOLATED;
    if (enter_pretokenizer(parser, json, err) < 0 ||
        (json_object_get(json, "behavior") && get_behavior(parser, json, &option, err) < 0))
        return -1;
    return tok_writer_add_step(parser->writer, LIST_PRETOKENIZER, SPLIT_PUNCTUATION, option, NULL, NULL,
                               err);
}

static int parse_whitespace_split(struct parser *parser, const json_t *json, struct err *err)
{
    return enter_pretokenizer(parser, json, err) < 0
               ? -1
               : add_split(parser->writer, "\\s", BEHAVIOR_REMOVED, err);
}

static int parse_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct tok_writer *writer = parser->writer;
    struct slice mark;
    enum metaspace_scheme scheme;
    bool split;
    if (enter_pretokenizer(parser, json, err) < 0 ||
        component_metaspace(parser, json, &mark, &scheme, err) < 0 ||
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

static const struct component pretokenizers[] = {
    {"ByteLevel", parse_byte_level},
    {"Digits", parse_digits},
    {"Metaspace", parse_metaspace},
    {"Punctuation", parse_punctuation},
    {"Sequence", component_parse_sequence},
    {"Split", parse_split},
    {"WhitespaceSplit", parse_whitespace_split},
};

const struct component_list pretokenizer_components = {"pre_tokenizer", "pretokenizers", pretokenizers,
                                                       ARRAY_LEN(pretokenizers)};

/* Parses post-processors of tokenizer.json: ids that are added before and after a text. */

static int parse_no_effect(struct parser *parser, const json_t *json, struct err *err)
{
    (void)parser;
    (void)json;
    (void)err;
    return 0;
}

/* Appends the ids of a special token of a template; `specials` lists them by name. */
static int add_template_ids(const struct parser *parser, const json_t *specials, const json_t *piece,
                            struct ids *ids, struct err *err)
{
    const struct tok_writer *writer = parser->writer;
    struct slice name;
    if (component_string(parser, piece, "id", &name, err) < 0)
        return -1;
    const json_t *list = json_object_get(json_object_get(specials, name.data), "ids");
    if (!json_is_array(list))
        return err_set(err, "%s: the template's \"%s\" has no ids", writer->where, name.data);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || (uint64_t)value >= writer->ids || !writer->token[value].flags)
            return err_set(err, "%s: the template's \"%s\" has id %lld, which does not exist",
                           writer->where, name.data, (long long)value);
        if (ids_add(ids, (uint32_t)value, err) < 0)
            return -1;
    }
    return 0;
}

/* Puts a template's prefix before, and its suffix after, those of earlier templates. */
static int wrap_template(struct tok_writer *writer, struct ids *prefix, const struct ids *suffix,
                         struct err *err)
{
    if (ids_append(prefix, &writer->prefix, err) < 0)
        return -1;
    struct ids inner = writer->prefix;
    writer->prefix = *prefix;
    *prefix = inner;
    return ids_append(&writer->suffix, suffix, err);
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
                    parser->writer->where, i);
            goto out;
        }
    }
    if (texts != 1) {
        err_set(err, "%s: the template for a single text contains the text %zu times, expected 1",
                parser->writer->where, texts);
        goto out;
    }
    parser->has_template = true;
    rc = wrap_template(parser->writer, &prefix, &suffix, err);
out:
    ids_release(&prefix);
    ids_release(&suffix);
    return rc;
}

static const struct component postprocessors[] = {
    {"ByteLevel", parse_no_effect},
    {"Sequence", component_parse_sequence},
    {"TemplateProcessing", parse_template},
};

const struct component_list postprocessor_components = {"post_processor", "processors", postprocessors,
                                                        ARRAY_LEN(postprocessors)};

/* Parses decoders of tokenizer.json, which become decoder steps of the tokenizer tables. */

static int advance_stage(struct parser *parser, const char *name, enum decode_stage from,
                         enum decode_stage to, struct err *err)
{
    if (parser->stage > from)
        return err_set(err, "%s: decoder \"%s\" at this position of a Sequence is not supported",
                       parser->writer->where, name);
    parser->stage = to;
    return 0;
}

static int parse_decode_bytes(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    if (advance_stage(parser, "ByteFallback", STAGE_REPLACED, STAGE_BYTES, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL, err);
}

static int parse_decode_byte_level(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    parser->byte_level_decoder = true;
    return advance_stage(parser, "ByteLevel", STAGE_START, STAGE_FUSED, err);
}

static int parse_decode_fuse(struct parser *parser, const json_t *json, struct err *err)
{
    (void)json;
    return advance_stage(parser, "Fuse", STAGE_FUSED, STAGE_FUSED, err);
}

static int parse_decode_metaspace(struct parser *parser, const json_t *json, struct err *err)
{
    static const struct slice space = {" ", 1};
    struct slice mark;
    enum metaspace_scheme scheme;
    if (advance_stage(parser, "Metaspace", STAGE_REPLACED, STAGE_REPLACED, err) < 0 ||
        component_metaspace(parser, json, &mark, &scheme, err) < 0)
        return -1;
    return tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_METASPACE, scheme != SCHEME_NEVER,
                               &mark, &space, err);
}

static int parse_decode_replace(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice pattern, content;
    struct buf regex = {0};
    bool is_regex;
    int rc = -1;
    if (advance_stage(parser, "Replace", STAGE_REPLACED, STAGE_REPLACED, err) == 0 &&
        component_pattern(parser, json, &regex, &pattern, &is_regex, err) == 0 &&
        component_string(parser, json, "content", &content, err) == 0)
        rc = is_regex ? err_set(err, "%s: decoder \"Replace\" with a Regex is not supported",
                                parser->writer->where)
                      : tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_REPLACE, 0, &pattern,
                                            &content, err);
    buf_release(&regex);
    return rc;
}

static int parse_decode_strip(struct parser *parser, const json_t *json, struct err *err)
{
    struct slice content;
    json_int_t start, stop;
    if (component_string(parser, json, "content", &content, err) < 0 ||
        component_count(parser, json, "start", &start, err) < 0 ||
        component_count(parser, json, "stop", &stop, err) < 0)
        return -1;
    if (parser->stage != STAGE_FUSED || content.size != 1 || start < 0 || start > 1 || stop != 0)
        return err_set(err,
                       "%s: decoder \"Strip\" is only supported for one character at the start, "
                       "after a \"Fuse\"",
                       parser->writer->where);
    parser->stage = STAGE_STRIPPED;
    return start
               ? tok_writer_add_step(parser->writer, LIST_DECODER, DECODE_STRIP, 0, &content, NULL, err)
               : 0;
}

static const struct component decoders[] = {
    {"ByteFallback", parse_decode_bytes}, {"ByteLevel", parse_decode_byte_level},
    {"Fuse", parse_decode_fuse},          {"Metaspace", parse_decode_metaspace},
    {"Replace", parse_decode_replace},    {"Sequence", component_parse_sequence},
    {"Strip", parse_decode_strip},
};

static const struct component_list decoder_components = {"decoder", "decoders", decoders,
                                                         ARRAY_LEN(decoders)};

/* The kinds of components, in the order in which they are parsed. */
static const struct component_list *const lists[] = {
    &normalizer_components,
    &pretokenizer_components,
    &postprocessor_components,
    &decoder_components,
};

int tok_components_parse(struct tok_writer *writer, const json_t *tokenizer, bool *has_template,
                         struct err *err)
{
    struct parser parser = {.writer = writer};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const json_t *json = json_object_get(tokenizer, lists[i]->what);
        parser.list = lists[i];
        if (json && !json_is_null(json) && component_parse(&parser, json, err) < 0)
            return -1;
    }
    if (components_leave_byte_alphabet(&parser, err) < 0)
        return -1;
    bool byte_level = (writer->flags & TOK_BYTE_LEVEL) != 0;
    if (parser.stage == STAGE_START)
        return err_set(err, "%s: a tokenizer without a decoder is not supported", writer->where);
    if (byte_level != parser.byte_level_decoder)
        return err_set(err, "%s: a %s \"ByteLevel\" without a %s \"ByteLevel\" is not supported",
                       writer->where, byte_level ? "pre_tokenizer" : "decoder",
                       byte_level ? "decoder" : "pre_tokenizer");
    *has_template = parser.has_template;
    return 0;
}
