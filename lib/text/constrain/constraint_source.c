/* Reads constraints of all kinds. */
#include "text/constrain/constraint_source.h"

#include <string.h>

#include "text/grammar/expr_texts.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/regex.h"

static int parse_schema(struct grammar *g, const char *text, size_t len, struct err *err)
{
    json_t *schema = NULL;
    json_error_t why;
    if (!(schema = json_load(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why)))
        return json_error_code(&why) == json_error_out_of_memory
                   ? err_no_memory(err, "a JSON Schema")
                   : err_set(err, "JSON Schema: not valid JSON at line %d, column %d: %s", why.line,
                             why.column, why.text);
    const int rc = json_schema_parse(g, schema, err);
    json_decref(schema);
    return rc;
}

static int parse_object(struct grammar *g, const char *text, size_t len, struct err *err)
{
    (void)text, (void)len;
    return json_object_grammar(g, err);
}

static void set_root(struct grammar *g, expr_id body)
{
    g->root = grammar_add_rule(g, "root", 4);
    grammar_set_rule(g, g->root, body);
}

static int finish(struct grammar *g, struct err *err)
{
    if (!g->failed)
        return 0;
    *err = g->why;
    return -1;
}

static int parse_regex(struct grammar *g, const char *text, size_t len, struct err *err)
{
    struct json_grammar json = {.grammar = g};
    set_root(g, regex_parse(&json, text, len, REGEX_WHOLE));
    return finish(g, err);
}

static int parse_choice(struct grammar *g, const char *text, size_t len, struct err *err)
{
    struct expr_texts list = {0};
    json_t *choices;
    if (json_parse(text, len, "choice", &choices, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *choice = json_array_get(choices, i);
        if (!g->failed &&
            buf_add(&list.bytes, json_string_value(choice), json_string_length(choice), &g->why) < 0)
            g->failed = true;
        expr_texts_end(g, &list);
        if (!json_string_length(choice))
            grammar_fail(g, "choice: alternative %zu is empty", i + 1);
    }
    if (!list.n)
        grammar_fail(g, "choice: there are no alternatives");
    set_root(g, expr_texts(g, &list));
    json_decref(choices);
    return finish(g, err);
}

int constraint_source_parse(struct grammar *grammar, enum constraint_kind kind, const char *text,
                            size_t len, struct err *err)
{
    static int (*const parse[])(struct grammar *, const char *, size_t, struct err *) = {
        [CONSTRAINT_JSON_SCHEMA] = parse_schema, [CONSTRAINT_JSON_OBJECT] = parse_object,
        [CONSTRAINT_GRAMMAR] = gbnf_parse,       [CONSTRAINT_REGEX] = parse_regex,
        [CONSTRAINT_CHOICE] = parse_choice,
    };
    grammar_begin(grammar);
    return kind == CONSTRAINT_NONE ? err_set(err, "there is no constraint")
                                   : parse[kind](grammar, text, len, err);
}

int constraint_split_choice(const char *text, struct buf *out, struct err *err)
{
    json_t *list = json_array();
    struct buf part = {0};
    int rc = list ? 0 : err_no_memory(err, "choices");
    for (const char *c = text; rc == 0; c++) {
        if (*c && *c != '|') {
            c += *c == '\\' && (c[1] == '|' || c[1] == '\\');
            rc = buf_add(&part, c, 1, err);
            continue;
        }
        rc = json_push(list, json_stringn(buf_text(&part), part.len), err);
        buf_clear(&part);
        if (!*c)
            break;
    }
    if (rc == 0)
        rc = json_append(list, JSON_COMPACT, out, err);
    buf_release(&part);
    json_decref(list);
    return rc;
}
