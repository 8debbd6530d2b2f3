/* Parses post-processors of tokenizer.json: ids that are added before and after a text. */
#include "text/import/tok_parser.h"

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

static const struct component components[] = {
    {"ByteLevel", parse_no_effect},
    {"Sequence", component_parse_sequence},
    {"TemplateProcessing", parse_template},
};

const struct component_list postprocessor_components = {"post_processor", "processors", components,
                                                        ARRAY_LEN(components)};
