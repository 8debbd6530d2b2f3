/* Structures of texts, tokens and JSON Schemas, as grammars. */
#include "text/grammar/structure.h"

#include "text/grammar/json_schema.h"
#include "text/grammar/regex.h"

enum { STRUCTURE_DEPTH = 32 };

static expr_id read_part(struct grammar *g, const json_t *part, size_t depth);

static expr_id read_list(struct grammar *g, const json_t *list, size_t depth, bool any)
{
    struct expr_list parts = {0};
    const json_t *part;
    size_t i;
    json_array_foreach(list, i, part) expr_list_add(g, &parts, read_part(g, part, depth));
    return any ? expr_list_alt(g, &parts) : expr_list_seq(g, &parts);
}

static expr_id read_schema(struct grammar *g, const json_t *part, const json_t *schema)
{
    const json_t *token = json_object_get(part, "token");
    const bool call = json_is_true(json_object_get(part, "call"));
    struct json_style style = {
        .python = call, .call = call, .quote = json_string_value(json_object_get(part, "quote"))};
    char bytes[EXPR_TOKEN_BYTES + 1];
    style.quote_bytes = style.quote;
    if (style.quote && json_is_integer(token) && json_integer_value(token) >= 0 &&
        json_integer_value(token) <= UINT32_MAX) {
        (void)expr_token(g, (uint32_t)json_integer_value(token));
        expr_token_bytes((uint32_t)json_integer_value(token), bytes);
        style.quote_bytes = bytes;
    }
    json_schema_parse_as(g, schema, &style);
    return g->failed ? EXPR_NONE : expr_rule(g, g->root);
}

static expr_id read_repeat(struct grammar *g, const json_t *part, size_t depth)
{
    const json_t *between = json_object_get(part, "between");
    const expr_id one = expr_as_rule(g, read_part(g, json_object_get(part, "repeat"), depth), "item");
    const expr_id before = between ? read_part(g, between, depth) : EXPR_EMPTY;
    return EXPR_SEQ(g, one, expr_repeat(g, EXPR_SEQ(g, before, one), 0, EXPR_MANY));
}

static expr_id read_regex(struct grammar *g, const char *text)
{
    struct json_grammar json = {.grammar = g};
    return regex_parse(&json, text, strlen(text), REGEX_WHOLE);
}

static expr_id read_object(struct grammar *g, const json_t *part, size_t depth)
{
    const json_t *schema = json_object_get(part, "schema"), *any = json_object_get(part, "any_of"),
                 *optional = json_object_get(part, "optional");
    const char *until = json_string_value(json_object_get(part, "until")),
               *regex = json_string_value(json_object_get(part, "regex"));
    if (json_object_get(part, "repeat"))
        return read_repeat(g, part, depth);
    return schema     ? read_schema(g, part, schema)
           : any      ? read_list(g, any, depth, true)
           : optional ? EXPR_OPTIONAL(g, read_part(g, optional, depth))
           : until    ? EXPR_SEQ(g, json_text_without(g, until), expr_text(g, until))
           : regex    ? read_regex(g, regex)
                      : grammar_fail(
                            g, "structure: an object has none of schema, any_of, optional, repeat, until "
                                  "and regex");
}

static expr_id read_part(struct grammar *g, const json_t *part, size_t depth)
{
    if (depth == STRUCTURE_DEPTH)
        return grammar_fail(g, "structure: parts are nested too deeply");
    if (json_is_string(part))
        return expr_bytes(g, json_string_value(part), json_string_length(part));
    if (json_is_integer(part) && json_integer_value(part) >= 0 &&
        json_integer_value(part) <= UINT32_MAX)
        return expr_token(g, (uint32_t)json_integer_value(part));
    if (json_is_array(part))
        return read_list(g, part, depth + 1, false);
    return json_is_object(part) ? read_object(g, part, depth + 1)
                                : grammar_fail(g, "structure: a part is %s", json_type_name(part));
}

void structure_parse(struct grammar *g, const json_t *structure)
{
    const expr_id whole = read_part(g, structure, 0);
    g->root = grammar_add_rule(g, "root", 4);
    grammar_set_rule(g, g->root, whole);
}
