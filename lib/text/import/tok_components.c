/* Compiles components of tokenizer.json to steps of the tables. Each kind of component has a table of names
 * and parsers below; steps are executed in tok_steps.c and detok.c. */
#include "text/import/tok_components.h"

#include "text/pattern.h"
#include "text/utf8.h"

enum { MAX_DEPTH = 4 }; /* maximum nesting of components of type Sequence */

/* Progress in a chain of decoders: only in this order is decoding token by token equivalent to
 * decoding the whole list. */
enum decode_stage { STAGE_START, STAGE_REPLACED, STAGE_BYTES, STAGE_FUSED, STAGE_STRIPPED };

struct parser {
    struct tok_writer *writer;
    const char *where;
    const struct component_list *list;
    const struct component *component; /* that is parsed */
    unsigned depth;
    bool byte_alphabet; /* pre-tokens are in the byte alphabet now */
    enum decode_stage stage;
    bool byte_level_decoder;
    bool has_template;
};

/* A component's name and parse function, which adds its steps; NULL: a normalizer that is one step without
 * operands. */
struct component {
    const char *name;
    void (*parse)(struct parser *, const json_t *);
    enum tok_step_kind step;
    uint32_t option;
};

struct component_list {
    const char *what;
    const char *members; /* key under which a Sequence lists its components */
    const struct component *components;
    size_t count;
};

static const struct slice one_space = {" ", 1};

/* ---- members of components ---- */

bool component_bool(struct tok_writer *w, const json_t *object, const char *key, bool fallback)
{
    const json_t *found = json_object_get(object, key);
    if (!found || json_is_null(found))
        return fallback;
    if (!json_is_boolean(found))
        tok_writer_fail(w, "%s: \"%s\" is %s, expected true or false", w->where, key,
                        json_type_name(found));
    return json_is_true(found);
}

/* A string; "" after an error. */
static struct slice component_string(struct parser *p, const json_t *object, const char *key)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_string(found)) {
        tok_writer_fail(p->writer, "%s: \"%s\" of a %s is %s, expected a string", p->where, key,
                        p->list->what, json_type_name(found));
        return (struct slice){"", 0};
    }
    return (struct slice){json_string_value(found), json_string_length(found)};
}

static json_int_t component_count(struct parser *p, const json_t *object, const char *key)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_integer(found))
        tok_writer_fail(p->writer, "%s: \"%s\" of a %s is %s, expected an integer", p->where, key,
                        p->list->what, json_type_name(found));
    return json_integer_value(found);
}

/* Reads "pattern": {"String": ...} or {"Regex": ...}; a regex is translated to PCRE2 in `regex`. */
static struct slice component_pattern(struct parser *p, const json_t *json, struct buf *regex,
                                      bool *is_regex)
{
    struct tok_writer *w = p->writer;
    const json_t *object = json_object_get(json, "pattern");
    *is_regex = json_object_get(object, "Regex") != NULL;
    const struct slice pattern = component_string(p, object, *is_regex ? "Regex" : "String");
    if (!*is_regex && !pattern.size)
        tok_writer_fail(w, "%s: an empty pattern of a %s is not supported", p->where, p->list->what);
    if (*is_regex && pattern.size > TOK_MAX_PATTERN)
        tok_writer_fail(w, "%s: a pattern of %zu bytes is longer than %d", p->where, pattern.size,
                        (int)TOK_MAX_PATTERN);
    if (!*is_regex || w->failed)
        return pattern;
    if (TOK_TRY(w, pattern_translate(pattern.data, pattern.size, regex, w->err)))
        (void)err_prefix(w->err, "%s", p->where);
    return (struct slice){buf_text(regex), regex->len};
}

/* Reads what Metaspace has as pre-tokenizer and as decoder: the character for spaces, and which
 * pre-tokens it is prepended to. */
enum metaspace_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER, SCHEMES };
static struct slice component_metaspace(struct parser *p, const json_t *json,
                                        enum metaspace_scheme *scheme)
{
    static const char *const names[SCHEMES] = {"always", "first", "never"};
    struct tok_writer *w = p->writer;
    const struct slice mark = component_string(p, json, "replacement");
    const bool add_prefix_space = component_bool(w, json, "add_prefix_space", true);
    if (!mark.size || utf8_step(mark.data, mark.size) != (int)mark.size)
        tok_writer_fail(w, "%s: \"replacement\" of a Metaspace is \"%s\", expected one character",
                        p->where, mark.data);
    const char *name = json_object_get(json, "prepend_scheme")
                           ? component_string(p, json, "prepend_scheme").data
                           : "always";
    *scheme = SCHEME_ALWAYS;
    while (*scheme < SCHEMES && strcmp(names[*scheme], name) != 0)
        ++*scheme;
    if (*scheme == SCHEMES)
        tok_writer_fail(w, "%s: unknown prepend_scheme \"%s\" of a Metaspace", p->where, name);
    if (!add_prefix_space)
        *scheme = SCHEME_NEVER;
    return mark;
}

/* ---- components ---- */

static void refuse_component(const struct parser *p, const char *name)
{
    struct tok_writer *w = p->writer;
    AUTO(buf_release) struct buf names = {0};
    for (size_t i = 0; i < p->list->count; i++)
        TOK_TRY(w, buf_addf(&names, w->err, "%s%s", i ? ", " : "", p->list->components[i].name));
    tok_writer_fail(w, "%s: %s \"%s\" is not supported; supported are %s", p->where, p->list->what,
                    name, buf_text(&names));
}

/* Parses a component with the parse function for its "type". */
static void component_parse(struct parser *p, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "type"));
    if (!name) {
        tok_writer_fail(p->writer, "%s: a %s has no \"type\"", p->where, p->list->what);
        return;
    }
    for (size_t i = 0; i < p->list->count; i++)
        if (strcmp(p->list->components[i].name, name) == 0) {
            p->component = &p->list->components[i];
            if (p->component->parse)
                p->component->parse(p, json);
            else
                tok_writer_add_step(p->writer, LIST_NORMALIZER, p->component->step,
                                    p->component->option, NULL, NULL);
            return;
        }
    refuse_component(p, name);
}

static void component_parse_sequence(struct parser *p, const json_t *json)
{
    const json_t *members = json_object_get(json, p->list->members);
    if (!json_is_array(members))
        tok_writer_fail(p->writer, "%s: \"%s\" of a %s is %s, expected an array", p->where,
                        p->list->members, p->list->what, json_type_name(members));
    if (p->depth == MAX_DEPTH)
        tok_writer_fail(p->writer, "%s: more than %d nested %ss", p->where, (int)MAX_DEPTH,
                        p->list->what);
    p->depth++;
    for (size_t i = 0; i < json_array_size(members) && !p->writer->failed; i++)
        component_parse(p, json_array_get(members, i));
    p->depth--;
}

/* ---- normalizers ---- */

static void parse_strip(struct parser *p, const json_t *json)
{
    const bool left = component_bool(p->writer, json, "strip_left", false),
               right = component_bool(p->writer, json, "strip_right", false);
    tok_writer_add_step(p->writer, LIST_NORMALIZER, NORMALIZE_STRIP,
                        (left ? STRIP_LEFT : 0U) | (right ? STRIP_RIGHT : 0U), NULL, NULL);
}

static void parse_precompiled(struct parser *p, const json_t *json)
{
    tok_writer_set_charsmap(p->writer, component_string(p, json, "precompiled_charsmap"));
    tok_writer_add_step(p->writer, LIST_NORMALIZER, NORMALIZE_CHARSMAP, 0, NULL, NULL);
}

static void parse_prepend(struct parser *p, const json_t *json)
{
    const struct slice prefix = component_string(p, json, "prepend");
    tok_writer_add_step(p->writer, LIST_NORMALIZER, NORMALIZE_PREPEND, 0, &prefix, NULL);
}

static void parse_replace(struct parser *p, const json_t *json)
{
    AUTO(buf_release) struct buf regex = {0};
    bool is_regex;
    const struct slice pattern = component_pattern(p, json, &regex, &is_regex),
                       content = component_string(p, json, "content");
    tok_writer_add_step(p->writer, LIST_NORMALIZER,
                        is_regex ? NORMALIZE_REPLACE_PATTERN : NORMALIZE_REPLACE, 0, &pattern,
                        &content);
}

static void add_replacement(struct tok_writer *w, const char *pattern)
{
    const struct slice what = {pattern, strlen(pattern)}, nothing = {"", 0};
    tok_writer_add_step(w, LIST_NORMALIZER, NORMALIZE_REPLACE_PATTERN, 0, &what, &nothing);
}

/* BERT's normalizer, but for white space, of which its pre-tokenizer takes every kind as a space, and Chinese characters,
 * which that isolates. */
static void parse_bert_normalizer(struct parser *p, const json_t *json)
{
    struct tok_writer *w = p->writer;
    const bool lowercase = component_bool(w, json, "lowercase", true);
    if (component_bool(w, json, "clean_text", true))
        add_replacement(w, "[\\x{0}\\x{fffd}\\p{Cf}\\p{Co}]|(?![\\t\\n\\r])\\p{Cc}");
    w->isolate_chinese = component_bool(w, json, "handle_chinese_chars", true);
    if (component_bool(w, json, "strip_accents", lowercase)) {
        tok_writer_add_step(w, LIST_NORMALIZER, NORMALIZE_UNICODE, FORM_NFD, NULL, NULL);
        add_replacement(w, "\\p{Mn}");
    }
    if (lowercase)
        tok_writer_add_step(w, LIST_NORMALIZER, NORMALIZE_LOWERCASE, 0, NULL, NULL);
}

static const struct component normalizers[] = {
    {"BertNormalizer", parse_bert_normalizer, 0, 0},
    {"Lowercase", NULL, NORMALIZE_LOWERCASE, 0},
    {"NFC", NULL, NORMALIZE_UNICODE, FORM_NFC},
    {"NFD", NULL, NORMALIZE_UNICODE, FORM_NFD},
    {"NFKC", NULL, NORMALIZE_UNICODE, FORM_NFKC},
    {"NFKD", NULL, NORMALIZE_UNICODE, FORM_NFKD},
    {"Precompiled", parse_precompiled, 0, 0},
    {"Prepend", parse_prepend, 0, 0},
    {"Replace", parse_replace, 0, 0},
    {"Sequence", component_parse_sequence, 0, 0},
    {"Strip", parse_strip, 0, 0},
    {"StripAccents", NULL, NORMALIZE_STRIP_ACCENTS, 0},
};

/* ---- pre-tokenizers ----
 *
 * ByteLevel needs no step, since the tables work on bytes. Only if other pre-tokenizers follow it,
 * which expect the byte alphabet, is text converted to it, and back to bytes at the end. */

static void add_pretokenizer(struct tok_writer *w, enum tok_step_kind kind, uint32_t option,
                             const struct slice *a, const struct slice *b)
{
    tok_writer_add_step(w, LIST_PRETOKENIZER, kind, option, a, b);
}

/* Adds a step that splits at a regular expression in the dialect of tokenizer.json. */
static void add_split(struct tok_writer *w, const char *content, uint32_t behavior)
{
    AUTO(buf_release) struct buf regex = {0};
    TOK_TRY(w, pattern_translate(content, strlen(content), &regex, w->err));
    add_pretokenizer(w, SPLIT_PATTERN, behavior, &(struct slice){regex.data, regex.len}, NULL);
}

void component_add_byte_level(struct tok_writer *w, bool add_prefix_space, bool use_regex)
{
    static const char content[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                                  "\\s+(?!\\S)|\\s+";
    if (add_prefix_space)
        add_pretokenizer(w, SPLIT_PREFIX, PREFIX_ALWAYS, &one_space, NULL);
    if (use_regex)
        add_split(w, content, BEHAVIOR_ISOLATED);
    w->flags |= TOK_BYTE_LEVEL;
}

/* Called first by each parse function: switches to the byte alphabet if ByteLevel came before. */
static struct tok_writer *enter_pretokenizer(struct parser *p, bool after_bytes)
{
    if (!(p->writer->flags & TOK_BYTE_LEVEL))
        return p->writer;
    if (!after_bytes)
        tok_writer_fail(p->writer, "%s: pre_tokenizer \"%s\" after \"ByteLevel\" is not supported",
                        p->where, p->component->name);
    if (!p->byte_alphabet)
        add_pretokenizer(p->writer, SPLIT_TO_BYTE_ALPHABET, 0, NULL, NULL);
    p->byte_alphabet = true;
    return p->writer;
}

static void parse_byte_level(struct parser *p, const json_t *json)
{
    struct tok_writer *w = enter_pretokenizer(p, false);
    const bool add_prefix_space = component_bool(w, json, "add_prefix_space", true);
    component_add_byte_level(w, add_prefix_space, component_bool(w, json, "use_regex", true));
}

static uint32_t behavior_of(struct parser *p, const json_t *json)
{
    static const char *const names[BEHAVIOR_COUNT] = {
        [BEHAVIOR_ISOLATED] = "Isolated",
        [BEHAVIOR_REMOVED] = "Removed",
        [BEHAVIOR_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [BEHAVIOR_MERGED_WITH_NEXT] = "MergedWithNext",
        [BEHAVIOR_CONTIGUOUS] = "Contiguous",
    };
    const char *name = component_string(p, json, "behavior").data;
    const bool invert = component_bool(p->writer, json, "invert", false);
    uint32_t i = 0;
    while (i < BEHAVIOR_COUNT && strcmp(names[i], name) != 0)
        i++;
    if (i == BEHAVIOR_COUNT)
        tok_writer_fail(p->writer, "%s: unknown behavior \"%s\" of a pre_tokenizer", p->where, name);
    return i | (invert ? SPLIT_INVERT : 0U);
}

static void parse_split(struct parser *p, const json_t *json)
{
    struct tok_writer *w = enter_pretokenizer(p, true);
    AUTO(buf_release) struct buf regex = {0};
    bool is_regex;
    const struct slice pattern = component_pattern(p, json, &regex, &is_regex);
    add_pretokenizer(w, is_regex ? SPLIT_PATTERN : SPLIT_TEXT, behavior_of(p, json), &pattern, NULL);
}

static void parse_digits(struct parser *p, const json_t *json)
{
    struct tok_writer *w = enter_pretokenizer(p, true);
    const bool individual = component_bool(w, json, "individual_digits", false);
    add_pretokenizer(w, SPLIT_DIGITS, individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS, NULL, NULL);
}

static void parse_punctuation(struct parser *p, const json_t *json)
{
    struct tok_writer *w = enter_pretokenizer(p, true);
    const bool given = json_object_get(json, "behavior");
    add_pretokenizer(w, SPLIT_PUNCTUATION, given ? behavior_of(p, json) : BEHAVIOR_ISOLATED, NULL,
                     NULL);
}

static void parse_whitespace_split(struct parser *p, const json_t *json)
{
    (void)json;
    add_split(enter_pretokenizer(p, true), "\\s", BEHAVIOR_REMOVED);
}

static void parse_metaspace(struct parser *p, const json_t *json)
{
    struct tok_writer *w = enter_pretokenizer(p, false);
    enum metaspace_scheme scheme;
    const struct slice mark = component_metaspace(p, json, &scheme);
    const bool split = component_bool(w, json, "split", true);
    add_pretokenizer(w, SPLIT_REPLACE, 0, &one_space, &mark);
    if (scheme != SCHEME_NEVER)
        add_pretokenizer(w, SPLIT_PREFIX, scheme == SCHEME_FIRST ? PREFIX_FIRST : PREFIX_ALWAYS, &mark,
                         NULL);
    if (split)
        add_pretokenizer(w, SPLIT_TEXT, BEHAVIOR_MERGED_WITH_NEXT, &mark, NULL);
}

static void parse_bert_pretokenizer(struct parser *p, const json_t *json)
{
    static const char chinese[] =
        "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{20000}-\\x{2A6DF}\\x{2A700}-\\x{2B73F}"
        "\\x{2B740}-\\x{2B81F}\\x{2B920}-\\x{2CEAF}\\x{F900}-\\x{FAFF}"
        "\\x{2F800}-\\x{2FA1F}]";
    struct tok_writer *w = enter_pretokenizer(p, false);
    parse_whitespace_split(p, json);
    add_pretokenizer(w, SPLIT_PUNCTUATION, BEHAVIOR_ISOLATED, NULL, NULL);
    if (w->isolate_chinese)
        add_split(w, chinese, BEHAVIOR_ISOLATED);
}

static const struct component pretokenizers[] = {
    {"BertPreTokenizer", parse_bert_pretokenizer, 0, 0},
    {"ByteLevel", parse_byte_level, 0, 0},
    {"Digits", parse_digits, 0, 0},
    {"Metaspace", parse_metaspace, 0, 0},
    {"Punctuation", parse_punctuation, 0, 0},
    {"Sequence", component_parse_sequence, 0, 0},
    {"Split", parse_split, 0, 0},
    {"WhitespaceSplit", parse_whitespace_split, 0, 0},
};

/* ---- post-processors: ids that are added before and after a text ---- */

static void parse_no_effect(struct parser *p, const json_t *json)
{
    (void)p;
    (void)json;
}

/* Appends the ids of a special token of a template; `specials` lists them by name. */
static void add_template_ids(struct parser *p, const json_t *specials, const json_t *piece,
                             struct ids *ids)
{
    struct tok_writer *w = p->writer;
    const char *name = component_string(p, piece, "id").data;
    const json_t *list = json_object_get(json_object_get(specials, name), "ids");
    if (!json_is_array(list))
        tok_writer_fail(w, "%s: the template's \"%s\" has no ids", p->where, name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || (uint64_t)value >= w->ids || !w->token[value].flags)
            tok_writer_fail(w, "%s: the template's \"%s\" has id %lld, which does not exist", p->where,
                            name, (long long)value);
        TOK_TRY(w, ids_add(ids, (uint32_t)value, w->err));
    }
}

/* Puts a template's prefix before, and its suffix after, those of earlier templates. */
static void wrap_template(struct tok_writer *w, struct ids *prefix, const struct ids *suffix)
{
    TOK_TRY(w, ids_append(prefix, &w->prefix, w->err));
    struct ids inner = w->prefix;
    w->prefix = *prefix;
    *prefix = inner;
    TOK_TRY(w, ids_append(&w->suffix, suffix, w->err));
}

static void parse_template(struct parser *p, const json_t *json)
{
    const json_t *single = json_object_get(json, "single");
    const json_t *specials = json_object_get(json, "special_tokens");
    AUTO(ids_release) struct ids prefix = {0}, suffix = {0};
    size_t texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *name = json_object_get(json_object_get(piece, "Sequence"), "id");
        if (special)
            add_template_ids(p, specials, special, texts ? &suffix : &prefix);
        else if (json_is_string(name) && strcmp(json_string_value(name), "A") == 0)
            texts++;
        else
            tok_writer_fail(p->writer,
                            "%s: part %zu of the template is neither a SpecialToken nor Sequence A",
                            p->where, i);
    }
    if (texts != 1)
        tok_writer_fail(p->writer,
                        "%s: the template for a single text contains the text %zu times, expected 1",
                        p->where, texts);
    p->has_template = true;
    wrap_template(p->writer, &prefix, &suffix);
}

static const struct component postprocessors[] = {
    {"ByteLevel", parse_no_effect, 0, 0},
    {"Sequence", component_parse_sequence, 0, 0},
    {"TemplateProcessing", parse_template, 0, 0},
};

/* ---- decoders ---- */

static void advance_stage(struct parser *p, enum decode_stage from, enum decode_stage to)
{
    if (p->stage > from)
        tok_writer_fail(p->writer, "%s: decoder \"%s\" at this position of a Sequence is not supported",
                        p->where, p->component->name);
    p->stage = to;
}

static void parse_decode_bytes(struct parser *p, const json_t *json)
{
    (void)json;
    advance_stage(p, STAGE_REPLACED, STAGE_BYTES);
    tok_writer_add_step(p->writer, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL);
}

static void parse_decode_byte_level(struct parser *p, const json_t *json)
{
    (void)json;
    p->byte_level_decoder = true;
    advance_stage(p, STAGE_START, STAGE_FUSED);
}

static void parse_decode_fuse(struct parser *p, const json_t *json)
{
    (void)json;
    advance_stage(p, STAGE_FUSED, STAGE_FUSED);
}

static void parse_decode_metaspace(struct parser *p, const json_t *json)
{
    enum metaspace_scheme scheme;
    advance_stage(p, STAGE_REPLACED, STAGE_REPLACED);
    const struct slice mark = component_metaspace(p, json, &scheme);
    tok_writer_add_step(p->writer, LIST_DECODER, DECODE_METASPACE, scheme != SCHEME_NEVER, &mark,
                        &one_space);
}

static void parse_decode_replace(struct parser *p, const json_t *json)
{
    AUTO(buf_release) struct buf regex = {0};
    bool is_regex;
    advance_stage(p, STAGE_REPLACED, STAGE_REPLACED);
    const struct slice pattern = component_pattern(p, json, &regex, &is_regex),
                       content = component_string(p, json, "content");
    if (is_regex)
        tok_writer_fail(p->writer, "%s: decoder \"Replace\" with a Regex is not supported", p->where);
    tok_writer_add_step(p->writer, LIST_DECODER, DECODE_REPLACE, 0, &pattern, &content);
}

static void parse_decode_strip(struct parser *p, const json_t *json)
{
    const struct slice content = component_string(p, json, "content");
    const json_int_t start = component_count(p, json, "start"), stop = component_count(p, json, "stop");
    if (p->stage != STAGE_FUSED || content.size != 1 || start < 0 || start > 1 || stop != 0)
        tok_writer_fail(p->writer,
                        "%s: decoder \"Strip\" is only supported for one character at the start, "
                        "after a \"Fuse\"",
                        p->where);
    p->stage = STAGE_STRIPPED;
    if (start)
        tok_writer_add_step(p->writer, LIST_DECODER, DECODE_STRIP, 0, &content, NULL);
}

/* Spaces before punctuation stay: the tokenizers library removes them from the whole text. */
static void parse_decode_wordpiece(struct parser *p, const json_t *json)
{
    (void)json;
    advance_stage(p, STAGE_REPLACED, STAGE_REPLACED);
    tok_writer_add_step(p->writer, LIST_DECODER, DECODE_METASPACE, 1,
                        &(struct slice){TOK_SPACE, sizeof TOK_SPACE - 1}, &one_space);
}

static const struct component decoders[] = {
    {"ByteFallback", parse_decode_bytes, 0, 0}, {"ByteLevel", parse_decode_byte_level, 0, 0},
    {"Fuse", parse_decode_fuse, 0, 0},          {"Metaspace", parse_decode_metaspace, 0, 0},
    {"Replace", parse_decode_replace, 0, 0},    {"Sequence", component_parse_sequence, 0, 0},
    {"Strip", parse_decode_strip, 0, 0},        {"WordPiece", parse_decode_wordpiece, 0, 0},
};

/* The kinds of components, in the order in which they are parsed. */
static const struct component_list lists[] = {
    {"normalizer", "normalizers", normalizers, ARRAY_LEN(normalizers)},
    {"pre_tokenizer", "pretokenizers", pretokenizers, ARRAY_LEN(pretokenizers)},
    {"post_processor", "processors", postprocessors, ARRAY_LEN(postprocessors)},
    {"decoder", "decoders", decoders, ARRAY_LEN(decoders)},
};

bool tok_components_parse(struct tok_writer *w, const json_t *tokenizer)
{
    struct parser p = {.writer = w, .where = w->where};
    for (size_t i = 0; i < ARRAY_LEN(lists) && !w->failed; i++) {
        const json_t *json = json_object_get(tokenizer, lists[i].what);
        p.list = &lists[i];
        if (json && !json_is_null(json))
            component_parse(&p, json);
    }
    if (p.byte_alphabet)
        add_pretokenizer(w, SPLIT_FROM_BYTE_ALPHABET, 0, NULL, NULL);
    const bool byte_level = (w->flags & TOK_BYTE_LEVEL) != 0;
    if (p.stage == STAGE_START)
        tok_writer_fail(w, "%s: a tokenizer without a decoder is not supported", w->where);
    if (byte_level != p.byte_level_decoder)
        tok_writer_fail(w, "%s: a %s \"ByteLevel\" without a %s \"ByteLevel\" is not supported",
                        w->where, byte_level ? "pre_tokenizer" : "decoder",
                        byte_level ? "decoder" : "pre_tokenizer");
    return p.has_template;
}
