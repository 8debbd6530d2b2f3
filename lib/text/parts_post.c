/* Post-processors of a tokenizer.json -> the template of the tables. Part of tok_parts.c's tables. */
#include "text/tok_parser.h"

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
    if (parts_string(parser, piece, "id", &name, err) < 0)
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

static const struct part parts[] = {
    {"ByteLevel", parse_no_effect},
    {"Sequence", parts_sequence},
    {"TemplateProcessing", parse_template},
};

const struct part_list parts_postprocessors = {"post_processor", "processors", parts, ARRAY_LEN(parts)};
