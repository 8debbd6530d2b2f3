/* JSON as text, as expressions. */
#include "text/grammar/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/utf8.h"

/* Returns a reference to the rule *rule, which is made by `body` on first use. */
static expr_id shared_rule(struct json_grammar *j, uint32_t *rule, const char *name,
                           expr_id body(struct json_grammar *))
{
    if (!*rule) {
        const uint32_t number = grammar_add_rule(j->grammar, name, strlen(name));
        *rule = number + 1;
        grammar_set_rule(j->grammar, number, body(j));
    }
    return expr_rule(j->grammar, *rule - 1);
}

static expr_id line_end(struct grammar *g)
{
    return EXPR_SEQ(g, expr_text(g, "\n"), expr_repeat(g, expr_text(g, " "), 0, JSON_INDENT));
}

expr_id json_space(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(g, EXPR_EMPTY, expr_text(g, " "), line_end(g));
}

expr_id json_brackets(struct json_grammar *j, const char *open, expr_id contents, const char *close)
{
    struct grammar *g = j->grammar;
    if (contents == EXPR_NONE)
        return EXPR_NONE;
    const uint32_t rule = grammar_add_rule(g, open, 1);
    grammar_set_rule(g, rule, contents);
    const expr_id inside = expr_rule(g, rule), line = line_end(g),
                  space = EXPR_OPTIONAL(g, expr_text(g, " "));
    return EXPR_SEQ(g, expr_text(g, open),
                    EXPR_ALT(g, EXPR_SEQ(g, space, inside, space), EXPR_SEQ(g, line, inside, line)),
                    expr_text(g, close));
}

/* One of the hexadecimal digits listed, in both cases. */
static expr_id hex_of(struct grammar *g, const char *digits)
{
    struct char_class set = {0};
    for (; *digits; digits++) {
        const uint32_t code = (uint32_t)*digits;
        char_class_add(g, &set, code, code);
        if (code >= 'a')
            char_class_add(g, &set, code - 'a' + 'A', code - 'a' + 'A');
    }
    char_class_sort(&set);
    const expr_id id = expr_class(g, set.range, set.n);
    char_class_release(&set);
    return id;
}

#define HEX "0123456789abcdef"

/* Four digits: no surrogates, not 0000. */
static expr_id hex_code(struct grammar *g)
{
    const expr_id h = hex_of(g, HEX), nonzero = hex_of(g, &HEX[1]), zero = expr_text(g, "0");
    return EXPR_ALT(g, EXPR_SEQ(g, hex_of(g, "123456789abcef"), h, h, h),
                    EXPR_SEQ(g, hex_of(g, "d"), hex_of(g, "01234567"), h, h),
                    EXPR_SEQ(g, zero, nonzero, h, h), EXPR_SEQ(g, zero, zero, nonzero, h),
                    EXPR_SEQ(g, zero, zero, zero, nonzero));
}

static expr_id escape_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    const expr_id h = hex_of(g, HEX), d = hex_of(g, "d");
    const expr_id pair =
        EXPR_SEQ(g, d, hex_of(g, "89ab"), h, h, expr_text(g, "\\u"), d, hex_of(g, "cdef"), h, h);
    static const struct code_range simple[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                               {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    return EXPR_SEQ(g, expr_text(g, "\\"),
                    EXPR_ALT(g, expr_class(g, simple, ARRAY_LEN(simple)),
                             EXPR_SEQ(g, expr_text(g, "u"), EXPR_ALT(g, hex_code(g), pair))));
}

/* A character of a string that is written as itself. */
static const struct code_range plain_chars[] = {{' ', '!'}, {'#', '['}, {']', CODE_MAX}};

static expr_id free_char(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(g, expr_class(g, plain_chars, ARRAY_LEN(plain_chars)),
                    shared_rule(j, &j->escape, "escape", escape_body));
}

static expr_id string_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    const expr_id quote = expr_text(g, "\"");
    return EXPR_SEQ(g, quote, expr_repeat(g, free_char(j), 0, EXPR_MANY), quote);
}

expr_id json_text_string(struct json_grammar *j, uint32_t min, uint32_t max)
{
    struct grammar *g = j->grammar;
    const expr_id quote = expr_text(g, "\"");
    if (min == 0 && max == EXPR_MANY)
        return shared_rule(j, &j->string, "string", string_body);
    return EXPR_SEQ(g, quote, expr_repeat(g, free_char(j), min, max), quote);
}

/* A control character but U+0000, in its shortest escape. */
static expr_id control_char(struct grammar *g, uint32_t code)
{
    static const char letters[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char text[8];
    if (code < sizeof letters && letters[code])
        snprintf(text, sizeof text, "\\%c", letters[code]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    return expr_text(g, text);
}

static expr_id control_chars(struct grammar *g, const struct char_class *set)
{
    expr_id list[0x20];
    size_t n = 0;
    for (uint32_t code = 1; code < ' '; code++)
        if (!set || char_class_has(set, code))
            list[n++] = control_char(g, code);
    return expr_alt(g, list, n);
}

static expr_id control_body(struct json_grammar *j) { return control_chars(j->grammar, NULL); }

expr_id json_char(struct json_grammar *j, const struct char_class *set)
{
    struct grammar *g = j->grammar;
    struct char_class plain = {0};
    expr_id list[4];
    size_t n = 0, controls = 0;
    for (size_t i = 0; i < set->n; i++)
        for (size_t k = 0; k < ARRAY_LEN(plain_chars); k++) {
            const uint32_t first =
                set->range[i].first > plain_chars[k].first ? set->range[i].first : plain_chars[k].first;
            const uint32_t last =
                set->range[i].last < plain_chars[k].last ? set->range[i].last : plain_chars[k].last;
            if (first <= last)
                char_class_add(g, &plain, first, last);
        }
    char_class_sort(&plain);
    if (plain.n)
        list[n++] = expr_class(g, plain.range, plain.n);
    char_class_release(&plain);
    if (char_class_has(set, '"'))
        list[n++] = expr_text(g, "\\\"");
    if (char_class_has(set, '\\'))
        list[n++] = expr_text(g, "\\\\");
    for (uint32_t code = 1; code < ' '; code++)
        controls += char_class_has(set, code);
    if (controls)
        list[n++] = controls == ' ' - 1 ? shared_rule(j, &j->control, "control", control_body)
                                        : control_chars(g, set);
    return expr_alt(g, list, n);
}

/* ---- names ---- */

expr_id json_name(struct json_grammar *j, const char *name)
{
    json_t *text = json_string(name);
    const expr_id id = json_constant(j, text);
    json_decref(text);
    return id;
}

static int by_spelling(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The rest of a name that differs from all of name[0..n), sorted, which begin with the same `at`
 * bytes as it does. */
static expr_id other_rest(struct grammar *g, const char *const *name, size_t n, size_t at)
{
    struct char_class others = {0};
    struct expr_list list = {0};
    const expr_id any =
        expr_repeat(g, expr_class(g, plain_chars, ARRAY_LEN(plain_chars)), 0, EXPR_MANY);
    bool ends = false;
    for (size_t i = 0; i < n && !g->failed;) {
        if (!name[i][at]) {
            ends = true;
            i++;
            continue;
        }
        size_t end = i + 1;
        uint32_t code;
        const unsigned len = utf8_decode(name[i] + at, &code);
        while (end < n && strncmp(name[end] + at, name[i] + at, len) == 0)
            end++;
        const expr_id rest = other_rest(g, name + i, end - i, at + len);
        if (code >= ' ' && code != '"' && code != '\\')
            expr_list_add(g, &list, EXPR_SEQ(g, expr_range(g, code, code), rest));
        char_class_add(g, &others, code, code);
        i = end;
    }
    char_class_add(g, &others, 0, 0x1f);
    char_class_add(g, &others, '"', '"');
    char_class_add(g, &others, '\\', '\\');
    char_class_negate(g, &others);
    expr_list_add(g, &list, EXPR_SEQ(g, expr_class(g, others.range, others.n), any));
    if (!ends)
        expr_list_add(g, &list, EXPR_EMPTY);
    const expr_id id = expr_alt(g, list.id, list.n);
    char_class_release(&others);
    expr_list_release(&list);
    return id;
}

expr_id json_other_name(struct json_grammar *j, const char *const *name, size_t n)
{
    enum { LONGEST = 200 }; /* bytes: the recursion above goes as deep */
    struct grammar *g = j->grammar;
    const char **sorted = mem_alloc(n + 1, sizeof *sorted);
    size_t used = 0;
    if (!sorted)
        return grammar_no_memory(g, "names");
    for (size_t i = 0; i < n; i++) {
        if (strlen(name[i]) > LONGEST)
            grammar_fail(g,
                         "a property name of %zu bytes is longer than %d, beside additional properties",
                         strlen(name[i]), LONGEST);
        else
            sorted[used++] = name[i];
    }
    qsort(sorted, used, sizeof *sorted, by_spelling);
    const expr_id quote = expr_text(g, "\"");
    const expr_id id = EXPR_SEQ(g, quote, other_rest(g, sorted, used, 0), quote);
    free(sorted);
    return id;
}

/* ---- values ---- */

void json_constant_text(struct json_grammar *j, const json_t *value, struct buf *text)
{
    struct grammar *g = j->grammar;
    char number[NUMBER_TEXT_SIZE];
    if (!value) {
        grammar_no_memory(g, "a value");
    } else if (json_is_real(value)) {
        number_text(json_real_value(value), number);
        g->failed = g->failed || buf_add(text, number, strlen(number), &g->why) < 0;
    } else {
        g->failed =
            g->failed || json_append(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17),
                                     text, &g->why) < 0;
    }
}

expr_id json_constant(struct json_grammar *j, const json_t *value)
{
    struct buf text = {0};
    json_constant_text(j, value, &text);
    const expr_id id = j->grammar->failed ? EXPR_NONE : expr_bytes(j->grammar, text.data, text.len);
    buf_release(&text);
    return id;
}

static expr_id digits(struct grammar *g, uint32_t min, uint32_t max)
{
    return expr_repeat(g, expr_range(g, '0', '9'), min, max);
}

expr_id json_integer_any(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(
        g, expr_text(g, "0"),
        EXPR_SEQ(g, EXPR_OPTIONAL(g, expr_text(g, "-")), expr_range(g, '1', '9'), digits(g, 0, 14)));
}

expr_id json_number_any(struct json_grammar *j)
{
    static const struct code_range exponent[] = {{'E', 'E'}, {'e', 'e'}},
                                   sign[] = {{'+', '+'}, {'-', '-'}};
    struct grammar *g = j->grammar;
    const expr_id whole =
        EXPR_ALT(g, expr_text(g, "0"), EXPR_SEQ(g, expr_range(g, '1', '9'), digits(g, 0, 14)));
    return EXPR_SEQ(
        g, EXPR_OPTIONAL(g, expr_text(g, "-")), whole,
        EXPR_OPTIONAL(g, EXPR_SEQ(g, expr_text(g, "."), digits(g, 1, 15))),
        EXPR_OPTIONAL(g, EXPR_SEQ(g, expr_class(g, exponent, 2),
                                  EXPR_OPTIONAL(g, expr_class(g, sign, 2)), digits(g, 1, 2))));
}

expr_id json_enclosed(struct json_grammar *j, const char *open, expr_id item, uint32_t min,
                      uint32_t max, const char *close)
{
    struct grammar *g = j->grammar;
    const expr_id none = EXPR_SEQ(g, expr_text(g, open), expr_text(g, close));
    if (max == 0 || item == EXPR_NONE)
        return min == 0 ? none : EXPR_NONE;
    const expr_id more = expr_repeat(g, EXPR_SEQ(g, expr_text(g, ","), json_space(j), item),
                                     min > 1 ? min - 1 : 0, max == EXPR_MANY ? EXPR_MANY : max - 1);
    const expr_id some = json_brackets(j, open, EXPR_SEQ(g, item, more), close);
    return min == 0 ? EXPR_ALT(g, none, some) : some;
}

static expr_id object_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    const expr_id member = EXPR_SEQ(g, json_text_string(j, 0, EXPR_MANY), expr_text(g, ":"),
                                    EXPR_OPTIONAL(g, expr_text(g, " ")), json_any(j));
    return json_enclosed(j, "{", member, 0, EXPR_MANY, "}");
}

static expr_id array_body(struct json_grammar *j)
{
    return json_enclosed(j, "[", json_any(j), 0, EXPR_MANY, "]");
}

expr_id json_any_object(struct json_grammar *j)
{
    return shared_rule(j, &j->object, "object", object_body);
}

expr_id json_any_array(struct json_grammar *j)
{
    return shared_rule(j, &j->array, "array", array_body);
}

static expr_id value_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(g, json_any_object(j), json_any_array(j), json_text_string(j, 0, EXPR_MANY),
                    json_number_any(j), expr_text(g, "true"), expr_text(g, "false"),
                    expr_text(g, "null"));
}

expr_id json_any(struct json_grammar *j) { return shared_rule(j, &j->value, "value", value_body); }
