/* Parses GBNF grammars. */
#include "text/grammar/gbnf.h"

#include "base/json.h"
#include "base/text_util.h"
#include "text/grammar/expr.h"
#include "text/slice.h"
#include "text/utf8.h"

enum {
    MAX_DEPTH = 128,    /* of groups */
    MAX_COUNT = 1 << 20 /* of repetitions */
};

struct gbnf {
    struct grammar *grammar;
    const char *text;
    size_t len, at;
    size_t depth;
    struct rule_name {
        struct slice name;
        uint32_t rule;
        bool defined;
        size_t first_use; /* offset in the text */
    } * rule;             /* in order of first use */
    size_t n_rules, rules_cap;
    json_t *index; /* of the rules, by name */
};

static expr_id fail_at(struct gbnf *p, size_t at, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < at && i < p->len; i++)
        line += p->text[i] == '\n';
    return grammar_fail(p->grammar, "grammar, line %zu: %s", line, what);
}

static bool at_end(const struct gbnf *p) { return p->at >= p->len || p->grammar->failed; }

static char peek(const struct gbnf *p) { return at_end(p) ? 0 : p->text[p->at]; }

static bool looks_at(const struct gbnf *p, const char *word)
{
    const size_t n = strlen(word);
    return !at_end(p) && p->len - p->at >= n && memcmp(p->text + p->at, word, n) == 0;
}

/* Skips blanks and comments, and line ends if `lines`. */
static void skip_space(struct gbnf *p, bool lines)
{
    while (!at_end(p)) {
        const char c = peek(p);
        if (c == '#')
            while (!at_end(p) && peek(p) != '\n')
                p->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            p->at++;
        else
            break;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static struct slice read_name(struct gbnf *p)
{
    const size_t start = p->at;
    while (!at_end(p) && is_name(peek(p)))
        p->at++;
    return (struct slice){p->text + start, p->at - start};
}

/* ---- names of rules ---- */

/* The rule of this name, which is new if it was not used before; NULL on failure. */
static struct rule_name *rule_of(struct gbnf *p, struct slice name)
{
    struct grammar *g = p->grammar;
    const json_t *known = json_object_getn(p->index, name.data, name.size);
    if (known)
        return &p->rule[json_integer_value(known)];
    if (g->failed)
        return NULL;
    if (mem_grow(&p->rule, &p->rules_cap, p->n_rules, sizeof *p->rule, &g->why) < 0 ||
        json_object_setn_new(p->index, name.data, name.size, json_integer((json_int_t)p->n_rules)) <
            0) {
        grammar_no_memory(g, "rules");
        return NULL;
    }
    struct rule_name *rule = &p->rule[p->n_rules++];
    *rule = (struct rule_name){name, grammar_add_rule(g, name.data, name.size), false,
                               (size_t)(name.data - p->text)};
    return rule;
}

/* ---- characters ---- */

static uint32_t read_hex(struct gbnf *p, size_t digits)
{
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        const int value = hex_digit(peek(p));
        if (value < 0) {
            fail_at(p, p->at, "a hexadecimal digit is expected");
            return 0;
        }
        code = code << 4 | (uint32_t)value;
        p->at++;
    }
    return code;
}

/* Reads a character of a text or class, which may be escaped. */
static uint32_t read_char(struct gbnf *p)
{
    static const char names[] = "nrt", codes[] = "\n\r\t";
    uint32_t code = 0;
    const size_t start = p->at;
    if (at_end(p))
        return 0;
    if (peek(p) != '\\') {
        p->at += utf8_decode(p->text + p->at, &code);
        return code;
    }
    p->at++;
    const char c = peek(p);
    const char *name = c ? strchr(names, c) : NULL;
    p->at++;
    if (name)
        return (uint32_t)codes[name - names];
    if (c == 'x')
        code = read_hex(p, 2);
    else if (c == 'u')
        code = read_hex(p, 4);
    else if (c == 'U')
        code = read_hex(p, 8);
    else if (c && strchr("\"\\[]^-", c))
        code = (uint32_t)c;
    else
        fail_at(p, start,
                "this escape is not known: \\n, \\r, \\t, \\\\, \\\", \\[, \\], \\xHH, \\uHHHH and "
                "\\UHHHHHHHH are");
    if (code > CODE_MAX || (code >= 0xd800 && code <= 0xdfff))
        fail_at(p, start, "this is not a character's code");
    return code;
}

static expr_id parse_text(struct gbnf *p)
{
    const size_t start = p->at++;
    AUTO(buf_release) struct buf text = {0};
    while (!at_end(p) && peek(p) != '"' && peek(p) != '\n') {
        char bytes[UTF8_MAX];
        const uint32_t code = read_char(p);
        if (!p->grammar->failed && buf_add(&text, bytes, utf8_write(code, bytes), &p->grammar->why) < 0)
            p->grammar->failed = true;
    }
    if (!p->grammar->failed && peek(p) != '"')
        fail_at(p, start, "the text has no end: a quotation mark is missing");
    p->at++;
    const expr_id id =
        p->grammar->failed ? EXPR_NONE : expr_bytes(p->grammar, buf_text(&text), text.len);
    return id;
}

static expr_id parse_class(struct gbnf *p)
{
    const size_t start = p->at++;
    struct char_class set = {0};
    const bool negative = peek(p) == '^';
    p->at += negative;
    while (!at_end(p) && peek(p) != ']') {
        const uint32_t first = read_char(p);
        uint32_t last = first;
        if (looks_at(p, "-") && !looks_at(p, "-]")) {
            p->at++;
            last = read_char(p);
        }
        if (first > last)
            fail_at(p, start, "a range of characters ends before it starts");
        char_class_add(p->grammar, &set, first, last);
    }
    if (!p->grammar->failed && peek(p) != ']')
        fail_at(p, start, "the class has no end: ] is missing");
    p->at++;
    if (negative)
        char_class_negate(p->grammar, &set);
    char_class_sort(&set);
    if (!p->grammar->failed && set.n == 0)
        fail_at(p, start, "the class is empty");
    return char_class_expr(p->grammar, &set);
}

/* ---- expressions ---- */

static expr_id parse_alternatives(struct gbnf *p);

static expr_id parse_group(struct gbnf *p)
{
    const size_t start = p->at++;
    if (++p->depth > MAX_DEPTH)
        return fail_at(p, start, "groups are nested too deeply");
    skip_space(p, true);
    const expr_id id = parse_alternatives(p);
    p->depth--;
    if (!p->grammar->failed && peek(p) != ')')
        return fail_at(p, start, "the group has no end: ) is missing");
    p->at++;
    return id;
}

static expr_id parse_atom(struct gbnf *p)
{
    const char c = peek(p);
    if (c == '"')
        return parse_text(p);
    if (c == '[')
        return parse_class(p);
    if (c == '(')
        return parse_group(p);
    if (c == '.') {
        p->at++;
        return expr_range(p->grammar, 0, CODE_MAX);
    }
    if (is_name(c)) {
        const struct rule_name *rule = rule_of(p, read_name(p));
        return rule ? expr_rule(p->grammar, rule->rule) : EXPR_NONE;
    }
    return fail_at(p, p->at,
                   c == '<' ? "tokens as <name> are not supported: write their text"
                            : "a text, a class, a group or the name of a rule is expected");
}

static bool read_count(struct gbnf *p, uint32_t *count)
{
    const size_t start = p->at;
    for (*count = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        *count = *count > MAX_COUNT ? *count : *count * 10 + (uint32_t)(peek(p) - '0');
    if (*count > MAX_COUNT)
        fail_at(p, start, "the repetition is too long: at most 1048576 is supported");
    return p->at > start;
}

static void read_braces(struct gbnf *p, uint32_t *min, uint32_t *max)
{
    const size_t start = p->at++;
    skip_space(p, p->depth > 0);
    const bool given = read_count(p, min);
    *max = *min;
    skip_space(p, p->depth > 0);
    if (peek(p) == ',') {
        p->at++;
        skip_space(p, p->depth > 0);
        if (!read_count(p, max))
            *max = EXPR_MANY;
        skip_space(p, p->depth > 0);
    } else if (!given) {
        fail_at(p, start, "a number is expected in braces, as in {2} or {2,5}");
    }
    if (!p->grammar->failed && peek(p) != '}')
        fail_at(p, start, "the repetition has no end: } is missing");
    if (*min > *max)
        fail_at(p, start, "the repetition's lower bound is above the upper one");
    p->at++;
}

static expr_id parse_repeated(struct gbnf *p)
{
    expr_id id = parse_atom(p);
    for (;;) {
        uint32_t min = 0, max = EXPR_MANY;
        skip_space(p, p->depth > 0);
        const char c = peek(p);
        if (c != '*' && c != '+' && c != '?' && c != '{')
            return id;
        if (c == '{')
            read_braces(p, &min, &max);
        else
            p->at++;
        min = c == '+' ? 1 : min;
        max = c == '?' ? 1 : max;
        id = expr_repeat(p->grammar, id, min, max);
    }
}

/* True if an alternative goes on: not at its end, nor at the end of the rule. A rule ends at a line
 * end, unless the next line begins with a bar. */
static bool goes_on(struct gbnf *p)
{
    skip_space(p, p->depth > 0);
    if (peek(p) == '\n') {
        const size_t start = p->at;
        skip_space(p, true);
        if (peek(p) != '|')
            p->at = start;
    }
    const char c = peek(p);
    return c && c != '\n' && c != '|' && c != ')';
}

static expr_id parse_sequence(struct gbnf *p)
{
    struct expr_list list = {0};
    while (goes_on(p))
        expr_list_add(p->grammar, &list, parse_repeated(p));
    return expr_list_seq(p->grammar, &list);
}

static expr_id parse_alternatives(struct gbnf *p)
{
    struct expr_list list = {0};
    for (;;) {
        expr_list_add(p->grammar, &list, parse_sequence(p));
        if (peek(p) != '|')
            break;
        p->at++;
        skip_space(p, true);
    }
    return expr_list_alt(p->grammar, &list);
}

static void parse_rule(struct gbnf *p)
{
    const size_t start = p->at;
    const struct slice name = read_name(p);
    if (!name.size) {
        fail_at(p, start, "the name of a rule is expected");
        return;
    }
    skip_space(p, true);
    if (!looks_at(p, "::=")) {
        fail_at(p, start, "::= is expected after the name of a rule");
        return;
    }
    p->at += 3;
    skip_space(p, true);
    struct rule_name *rule = rule_of(p, name);
    if (rule && rule->defined)
        fail_at(p, start, "this rule is defined twice");
    if (p->grammar->failed)
        return;
    rule->defined = true;
    const uint32_t number = rule->rule; /* the table may move */
    const expr_id body = parse_alternatives(p);
    grammar_set_rule(p->grammar, number, body);
    skip_space(p, false);
    if (!at_end(p) && peek(p) != '\n')
        fail_at(p, p->at, "this ends no group");
}

static void check_defined(struct gbnf *p)
{
    const json_t *root = json_object_get(p->index, "root");
    char what[96];
    if (!p->grammar->failed && (!root || !p->rule[json_integer_value(root)].defined))
        grammar_fail(p->grammar, "the grammar has no rule root, with which texts begin");
    if (p->grammar->failed)
        return;
    p->grammar->root = p->rule[json_integer_value(root)].rule;
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct rule_name *rule = &p->rule[i];
        if (rule->defined)
            continue;
        snprintf(what, sizeof what, "there is no rule %s",
                 excerpt_of(rule->name.data, rule->name.size).text);
        fail_at(p, rule->first_use, what);
        return;
    }
}

void gbnf_parse(struct grammar *grammar, const char *text, size_t len)
{
    struct gbnf p = {.grammar = grammar, .text = text, .len = len, .index = json_object()};
    const size_t valid = utf8_valid(text, len);
    if (!p.index)
        grammar_no_memory(grammar, "rules");
    else if (valid != len)
        fail_at(&p, valid, "the grammar is not valid UTF-8");
    else if (memchr(text, 0, len))
        fail_at(&p, (size_t)((const char *)memchr(text, 0, len) - text), "there is a zero character");
    for (skip_space(&p, true); !at_end(&p); skip_space(&p, true))
        parse_rule(&p);
    check_defined(&p);
    free(p.rule);
    json_decref(p.index);
}
