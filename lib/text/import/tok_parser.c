/* Parsing tokenizer.json components: their members, and sequences. */
#include "text/import/tok_parser.h"

#include "text/pattern.h"
#include "text/import/tok_components.h"
#include "text/utf8.h"

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

int component_string(const struct parser *parser, const json_t *object, const char *key,
                     struct slice *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_string(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected a string", parser->writer->where, key,
                       parser->list->what, json_type_name(found));
    *value = (struct slice){json_string_value(found), json_string_length(found)};
    return 0;
}

int component_count(const struct parser *parser, const json_t *object, const char *key,
                    json_int_t *value, struct err *err)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_integer(found))
        return err_set(err, "%s: \"%s\" of a %s is %s, expected an integer", parser->writer->where, key,
                       parser->list->what, json_type_name(found));
    *value = json_integer_value(found);
    return 0;
}

int component_pattern(const struct parser *parser, const json_t *json, struct buf *regex,
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

int component_metaspace(const struct parser *parser, const json_t *json, struct slice *mark,
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

int component_parse(struct parser *parser, const json_t *json, struct err *err)
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

int component_parse_sequence(struct parser *parser, const json_t *json, struct err *err)
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
