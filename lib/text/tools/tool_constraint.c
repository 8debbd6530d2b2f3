/* From patterns of calls and schemas of tools to structures. */
#include "text/tools/tool_constraint.h"

#include "base/text_util.h"
#include "text/tools/tool_call.h"
#include "text/tools/tool_match.h"

/* Where a structure is made. */
struct call_maker {
    const struct tool_format *format;
    const struct tool_pattern *pattern;
    const struct tokenizer *tok;
    struct err *err;
};

/* Appends a value, which is taken over; NULL: it could not be made, and m->err says why. */
static int push(const struct call_maker *m, json_t *list, json_t *value)
{
    return value ? json_push(list, value, m->err) : -1;
}

/* ---- texts ---- */

/* Appends a text to a list: the tokens that the vocabulary has for parts of it, as markers of calls often are, and the texts
 * between them. */
static int push_text(const struct call_maker *m, json_t *list, const char *text)
{
    AUTO(ids_release) struct ids found = {0};
    const char *end = text + strlen(text);
    int rc = tokenizer_find_added(m->tok, text, strlen(text), &found, m->err);
    for (size_t i = 0; i < found.len && rc == 0; i++) {
        AUTO(buf_release) struct buf piece = {0};
        rc = tokenizer_piece(m->tok, found.id[i], &piece, m->err);
        const char *at =
            rc == 0 && piece.len ? memmem(text, (size_t)(end - text), piece.data, piece.len) : NULL;
        if (!at)
            continue;
        if (at > text)
            rc = push(m, list, json_stringn(text, (size_t)(at - text)));
        if (rc == 0)
            rc = push(m, list, json_integer(found.id[i]));
        text = at + piece.len;
    }
    return rc == 0 && *text ? push(m, list, json_string(text)) : rc;
}

/* Appends a string as JSON writes it, between two texts. */
static int push_quoted(const struct call_maker *m, json_t *list, const char *before, const char *string,
                       const char *after)
{
    AUTO(buf_release) struct buf text = {0};
    AUTO(json_auto) json_t *value = json_string(string);
    if (!value)
        return err_no_memory(m->err, "a tool");
    return buf_add(&text, before, strlen(before), m->err) < 0 ||
                   json_append(value, JSON_ENCODE_ANY, &text, m->err) < 0 ||
                   buf_add(&text, after, strlen(after), m->err) < 0
               ? -1
               : push(m, list, json_stringn(text.data, text.len));
}

/* Appends {"KEY": VALUE}; takes over the value. */
static int push_part(const struct call_maker *m, json_t *list, const char *key, json_t *value)
{
    return push(m, list, json_pack("{s:o}", key, value));
}

/* ---- tools ---- */

/* Appends an object of arguments whose strings stand between the format's own quotes, which may be a token. */
static int push_quoted_arguments(const struct call_maker *m, json_t *list, json_t *schema)
{
    const char *quote = m->format->quote;
    AUTO(ids_release) struct ids found = {0};
    AUTO(buf_release) struct buf piece = {0};
    if (tokenizer_find_added(m->tok, quote, strlen(quote), &found, m->err) < 0 ||
        (found.len && tokenizer_piece(m->tok, *found.id, &piece, m->err) < 0))
        return -1;
    const bool is_token = strcmp(buf_text(&piece), quote) == 0;
    return push(m, list,
                json_pack("{s:O, s:s, s:o*}", "schema", schema, "quote", quote, "token",
                          is_token ? json_integer(*found.id) : NULL));
}

/* Appends a call as Python has it: the name, and the arguments that the schema allows, by their names. */
static int push_python_call(const struct call_maker *m, json_t *list, const json_t *tool)
{
    static const char *const alternatives[] = {
        "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "patternProperties"};
    const char *name = tool_name(tool);
    const json_t *given = json_object_get(tool_function_of(tool), "parameters");
    AUTO(json_auto)
    json_t *schema = json_is_object(given) ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (count_name(name, strlen(name)) != strlen(name))
        return err_set(m->err, "\"tools\": %.60s is no name that Python has", name);
    for (size_t i = 0; i < ARRAY_LEN(alternatives); i++)
        if (json_object_get(given, alternatives[i]))
            return err_set(
                m->err,
                "the format of tool calls \"%s\" has arguments by their names: \"parameters\" "
                "of %.60s with \"%s\" is not supported",
                m->format->name, name, alternatives[i]);
    return json_put(schema, "type", json_string("object"), m->err) < 0 ||
                   json_put(schema, "additionalProperties", json_false(), m->err) < 0 ||
                   push(m, list, json_string(name)) < 0
               ? -1
               : push(m, list, json_pack("{s:O, s:b}", "schema", schema, "call", 1));
}

/* Appends the object of a tool's arguments. */
static int push_arguments(const struct call_maker *m, json_t *list, const json_t *tool)
{
    json_t *schema = json_object_get(tool_function_of(tool), "parameters");
    if (m->format->quote && schema && !json_is_null(schema))
        return push_quoted_arguments(m, list, schema);
    return schema && !json_is_null(schema) ? push_part(m, list, "schema", json_incref(schema))
                                           : push(m, list, json_string("{}"));
}

/* Appends the object with name and arguments. */
static int push_object(const struct call_maker *m, json_t *list, const json_t *tool)
{
    AUTO(buf_release) struct buf before = {0}, after = {0};
    return buf_addf(&before, m->err, "{\"%s\": ", m->format->key[TOOL_KEY_NAME][0]) < 0 ||
                   buf_addf(&after, m->err, ", \"%s\": ", m->format->key[TOOL_KEY_ARGUMENTS][0]) < 0 ||
                   push_quoted(m, list, buf_text(&before), tool_name(tool), buf_text(&after)) < 0 ||
                   push_arguments(m, list, tool) < 0
               ? -1
               : push(m, list, json_string("}"));
}

/* ---- parameters as text of their own ---- */

static bool is_string(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && strcmp(type, "string") == 0;
}

/* Appends the value of a parameter and the text behind it: strings as they are, other values as JSON. */
static int push_value(const struct call_maker *m, json_t *list, const json_t *schema,
                      const char *behind)
{
    static const char *const limits[] = {"pattern", "format", "minLength", "maxLength",
                                         "anyOf",   "oneOf",  "allOf"};
    const json_t *values = json_object_get(schema, "enum"), *value;
    json_t *alternatives = json_array();
    size_t i;
    int rc = 0;
    if (!is_string(schema)) {
        json_decref(alternatives);
        rc = push_part(m, list, "schema", json_incref((json_t *)(uintptr_t)schema));
        return rc == 0 ? push_text(m, list, behind) : rc;
    }
    for (i = 0; i < ARRAY_LEN(limits) && rc == 0; i++)
        if (json_object_get(schema, limits[i]))
            rc = err_set(
                m->err,
                "the format of tool calls \"%s\" writes strings without quotes, for which \"%s\" "
                "is not supported",
                m->format->name, limits[i]);
    json_array_foreach(values, i, value)
    {
        if (rc == 0)
            rc = push(m, alternatives, json_incref((json_t *)(uintptr_t)value));
    }
    if (rc == 0 && values) {
        rc = push_part(m, list, "any_of", json_incref(alternatives));
        rc = rc == 0 ? push_text(m, list, behind) : rc;
    } else if (rc == 0) {
        rc = push_part(m, list, "until", json_string(behind));
    }
    json_decref(alternatives);
    return rc;
}

static json_t *parameter_part(const struct call_maker *m, const char *key, const json_t *schema)
{
    const struct tool_pattern *pattern = tool_format_parameter(m->format);
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < pattern->n && rc == 0; i++) {
        const struct tool_item *item = &pattern->item[i];
        if (item->kind == TOOL_KEY)
            rc = push(m, list, json_string(key));
        else if (item->kind == TOOL_VALUE)
            rc = push_value(m, list, schema, pattern->item[++i].text);
        else
            rc = push_text(m, list, item->text);
    }
    return json_or_null(list, rc, m->err);
}

/* Appends the parameters of a tool in the order of its schema; those that are not required may be left out. */
static int push_parameters(const struct call_maker *m, json_t *list, const json_t *tool)
{
    json_t *schema = json_object_get(tool_function_of(tool), "parameters");
    json_t *required = json_object_get(schema, "required"), *one, *name;
    const char *key;
    size_t i;
    int rc = 0;
    json_object_foreach(json_object_get(schema, "properties"), key, one)
    {
        bool must = false;
        json_array_foreach(required, i, name) must |= strcmp(json_string_value(name), key) == 0;
        json_t *part = rc == 0 ? parameter_part(m, key, one) : NULL;
        rc = !part ? -1 : must ? push(m, list, part) : push_part(m, list, "optional", part);
    }
    return rc;
}

/* ---- calls ---- */

static int refuse_body(const struct call_maker *m)
{
    return err_set(
        m->err,
        "the format of tool calls \"%s\" cannot be forced: give tool_choice \"auto\" or \"none\"",
        m->format->name);
}

static int push_item(const struct call_maker *m, json_t *list, const struct tool_item *item,
                     const json_t *tool)
{
    const char *name = tool_name(tool);
    switch (item->kind) {
    case TOOL_TEXT: return push_text(m, list, item->text);
    case TOOL_NAME: return item->text ? refuse_body(m) : push(m, list, json_string(name));
    case TOOL_ID: return push_part(m, list, "regex", json_string("[a-zA-Z0-9]{9}"));
    case TOOL_NAME_IN_ID:
        return push(m, list, json_string("functions.")) < 0 || push(m, list, json_string(name)) < 0
                   ? -1
                   : push_part(m, list, "regex", json_string(":[0-9]"));
    case TOOL_JSON: return push_object(m, list, tool);
    case TOOL_ARGUMENTS: return push_arguments(m, list, tool);
    case TOOL_PYTHON: return push_python_call(m, list, tool);
    case TOOL_PARAMETERS: return push_parameters(m, list, tool);
    default: return refuse_body(m);
    }
}

/* The items of the pattern from `from` on, for one tool. NULL: error. */
static json_t *call_part(const struct call_maker *m, const struct tool_item *item, size_t n,
                         const json_t *tool)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = push_item(m, list, &item[i], tool);
    return json_or_null(list, rc, m->err);
}

/* One of the calls that the choice allows, of these items. NULL: error. */
static json_t *any_call(const struct call_maker *m, const struct tool_item *item, size_t n,
                        const json_t *tools, const struct tool_choice *choice)
{
    json_t *calls = json_array();
    const json_t *tool;
    size_t i;
    int rc = 0;
    json_array_foreach(tools, i, tool)
    {
        if (rc == 0 && (choice->kind != TOOL_CHOICE_NAME || strcmp(tool_name(tool), choice->name) == 0))
            rc = push(m, calls, call_part(m, item, n, tool));
    }
    if (rc == 0 && !json_array_size(calls))
        rc = choice->kind == TOOL_CHOICE_NAME
                 ? err_set(m->err, "\"tool_choice\": no tool is called \"%.60s\"", choice->name)
                 : err_set(m->err, "\"tool_choice\" asks for a call, but there are no tools");
    return rc == 0 ? json_pack("{s:o}", "any_of", calls) : json_or_null(calls, rc, m->err);
}

/* {"repeat": PART, "between": TEXT}, or the part alone if there is to be one call; takes over the part. */
static json_t *repeated(const struct call_maker *m, json_t *part, const struct tool_choice *choice,
                        json_t *between)
{
    if (part && !choice->single)
        part = json_pack("{s:o, s:o}", "repeat", part, "between", between);
    else
        json_decref(between);
    return part ? part : (err_no_memory(m->err, "a constraint"), NULL);
}

/* What may stand between calls. */
static json_t *between_calls(const struct call_maker *m)
{
    json_t *list = json_array();
    int rc = m->format->separator ? push_text(m, list, m->format->separator)
                                  : push_part(m, list, "optional", json_string("\n"));
    return json_or_null(list, rc, m->err);
}

/* All calls of an answer; the first one without the texts before item `from`. */
static json_t *all_calls(const struct call_maker *m, size_t from, const json_t *tools,
                         const struct tool_choice *choice)
{
    const struct tool_pattern *p = m->pattern;
    const enum tool_item_kind body = p->n > p->body ? p->item[p->body].kind : TOOL_TEXT;
    const struct tool_item one = {.kind = body == TOOL_PYTHON ? TOOL_PYTHON : TOOL_JSON};
    const bool is_python = body == TOOL_PYTHON, brackets = !is_python || p->item[p->body].text;
    json_t *list = json_array();
    int rc = 0;
    if (body == TOOL_LIST || is_python) { /* the calls are in the body */
        for (size_t i = from; i < p->n && rc == 0; i++) {
            if (i != p->body) {
                rc = push_text(m, list, p->item[i].text);
                continue;
            }
            json_t *calls = any_call(m, &one, 1, tools, choice);
            calls = calls ? repeated(m, calls, choice, json_string(brackets ? ", " : "\n")) : NULL;
            rc = !calls     ? -1
                 : brackets ? push(m, list, json_pack("[s, o, s]", "[", calls, "]"))
                            : push(m, list, calls);
        }
        return json_or_null(list, rc, m->err);
    }
    rc = push(m, list, any_call(m, p->item + from, p->n - from, tools, choice));
    if (rc == 0 && !choice->single) { /* and more */
        json_t *call = any_call(m, p->item, p->n, tools, choice), *between = between_calls(m);
        rc = push(m, list, json_pack("{s:{s:[o, o]}}", "optional", "repeat", between, call));
    }
    return json_or_null(list, rc, m->err);
}

static int check_tools(const json_t *tools, struct err *err)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        if (!tool_name(tool) || !*tool_name(tool))
            return err_set(err, "\"tools\": entry %zu has no name", i);
    }
    return 0;
}

int tool_constraint(const struct tool_format *format, const json_t *tools,
                    const struct tool_choice *choice, const struct tokenizer *tok, struct buf *text,
                    struct buf *trigger, struct err *err)
{
    struct call_maker m = {format, tool_format_calls(format), tok, err};
    err_no_memory(
        err,
        "a constraint"); /* unless it is something else: values of JSON that cannot be made are NULL */
    if (check_tools(tools, err) < 0)
        return -1;
    const char *opening = tool_pattern_opening(m.pattern);
    const size_t len = text_trimmed(opening, strlen(opening));
    AUTO(json_auto) json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "a constraint");
    if (choice->kind == TOOL_CHOICE_AUTO) {
        rc = rc == 0 ? buf_add(trigger, opening, len, err) : rc;
        if (rc < 0 || !len)
            return rc;
        rc = push_text(&m, list, opening + len);
    } else if (rc == 0) {
        rc = push_part(&m, list, "optional", json_string("\n"));
        rc = rc == 0 ? push_text(&m, list, opening) : rc;
    }
    if (rc == 0)
        rc = push(&m, list, all_calls(&m, *opening != 0, tools, choice));
    return rc == 0 ? json_append(list, JSON_COMPACT | JSON_REAL_PRECISION(17), text, err) : rc;
}
