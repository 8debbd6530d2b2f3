/* JSON as text, and numbers in a range, as expressions. */
#include "text/grammar/json_text.h"

#include <ctype.h>

#include "base/number.h"
#include "text/utf8.h"

/* ---- JSON as text, as expressions ---- */

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

expr_id json_comma(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_SEQ(g, expr_text(g, ","), EXPR_ALT(g, EXPR_EMPTY, expr_text(g, " "), line_end(g)));
}

expr_id json_more(struct json_grammar *j, expr_id item, uint32_t min, uint32_t max, uint32_t n)
{
    return expr_repeat(j->grammar, EXPR_SEQ(j->grammar, json_comma(j), item), min > n ? min - n : 0,
                       max == EXPR_MANY ? EXPR_MANY : max - n);
}

expr_id json_brackets(struct json_grammar *j, const char *open, expr_id contents, const char *close)
{
    struct grammar *g = j->grammar;
    if (contents == EXPR_NONE)
        return EXPR_NONE;
    const expr_id inside = expr_as_rule(g, contents, open), line = line_end(g),
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
    return char_class_expr(g, &set);
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

static const char *word_of(const struct json_grammar *j, const char *word)
{
    return !j->style.python ? word : *word == 't' ? "True" : *word == 'f' ? "False" : "None";
}

expr_id json_word(struct json_grammar *j, const char *word)
{
    return expr_text(j->grammar, word_of(j, word));
}

static expr_id escape_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    const expr_id h = hex_of(g, HEX), d = hex_of(g, "d");
    const expr_id pair =
        EXPR_SEQ(g, d, hex_of(g, "89ab"), h, h, expr_text(g, "\\u"), d, hex_of(g, "cdef"), h, h);
    static const struct code_range simple[] = {{'"', '"'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'},
                                               {'n', 'n'}, {'r', 'r'},   {'t', 't'}, {'/', '/'}};
    const size_t n = ARRAY_LEN(simple) - j->style.python; /* which has no escape for the last */
    return EXPR_SEQ(g, expr_text(g, "\\"),
                    EXPR_ALT(g, expr_class(g, simple, n),
                             EXPR_SEQ(g, expr_text(g, "u"), EXPR_ALT(g, hex_code(g), pair))));
}

/* A character of a string that is written as itself. */
static const struct code_range plain_chars[] = {{' ', '!'}, {'#', '['}, {']', CODE_MAX}};

/* Any characters but the two with which the text begins, one after the other. */
expr_id json_text_without(struct grammar *g, const char *text)
{
    struct char_class others = {0}, neither = {0};
    const uint32_t first = (uint8_t)text[0], second = first ? (uint8_t)text[1] : 0;
    if (!second || first == second || (first | second) >= 0x80)
        return grammar_fail(g, "structure: \"until\" needs a text that begins with two different "
                               "characters of ASCII");
    char_class_add(g, &others, first, first);
    char_class_add(g, &neither, first, first);
    char_class_add(g, &neither, second, second);
    char_class_negate(g, &others);
    char_class_negate(g, &neither);
    const expr_id run = expr_bytes(g, text, 1);
    const expr_id other =
        EXPR_ALT(g, char_class_expr(g, &others),
                 EXPR_SEQ(g, expr_repeat(g, run, 1, EXPR_MANY), char_class_expr(g, &neither)));
    return EXPR_SEQ(g, expr_repeat(g, other, 0, EXPR_MANY), expr_repeat(g, run, 0, EXPR_MANY));
}

/* The delimiter of strings. */
static expr_id quote_of(struct json_grammar *j)
{
    return expr_text(j->grammar, j->style.quote ? j->style.quote_bytes : "\"");
}

static expr_id free_char(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    if (j->style.quote) { /* a part of the delimiter's first character is no delimiter */
        struct char_class others = {0};
        char_class_add(g, &others, 0, 0);
        char_class_add(g, &others, (uint8_t)*j->style.quote, (uint8_t)*j->style.quote);
        char_class_negate(g, &others);
        return char_class_expr(g, &others);
    }
    return EXPR_ALT(g, expr_class(g, plain_chars, ARRAY_LEN(plain_chars)),
                    shared_rule(j, &j->escape, "escape", escape_body));
}

static expr_id string_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    const expr_id quote = quote_of(j);
    return EXPR_SEQ(g, quote,
                    j->style.quote ? json_text_without(g, j->style.quote)
                                   : expr_repeat(g, free_char(j), 0, EXPR_MANY),
                    quote);
}

expr_id json_text_string(struct json_grammar *j, uint32_t min, uint32_t max)
{
    struct grammar *g = j->grammar;
    const expr_id quote = quote_of(j);
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
    char_class_meet(g, &plain, set->range, set->n, plain_chars, ARRAY_LEN(plain_chars));
    if (plain.n)
        list[n++] = char_class_expr(g, &plain);
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

/* Whether a name needs no quotes where there are none. */
static bool is_identifier(const char *name)
{
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || name[n] == '_')
        n++;
    return n && !name[n] && !isdigit((unsigned char)*name);
}

expr_id json_name(struct json_grammar *j, const char *name)
{
    if ((j->style.quote || j->style.call) && is_identifier(name))
        return expr_text(j->grammar, name);
    if (j->style.call)
        return grammar_fail(
            j->grammar, "the parameter \"%.60s\" is no identifier, which calls in Python need", name);
    struct json_grammar plain = {.grammar = j->grammar};
    AUTO(json_auto) json_t *text = json_string(name);
    const expr_id id = json_constant(&plain, text);
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

static void add_text(struct json_grammar *j, const char *text, size_t len, struct buf *out)
{
    struct grammar *g = j->grammar;
    g->failed = g->failed || buf_add(out, text, len, &g->why) < 0;
}

/* The text of an object or a list in a style. */
static void add_styled(struct json_grammar *j, const json_t *value, struct buf *text)
{
    struct json_grammar plain = {.grammar = j->grammar};
    const char *key;
    json_t *one;
    size_t i, n = 0;
    add_text(j, json_is_object(value) ? "{" : "[", 1, text);
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        AUTO(json_auto) json_t *name = json_string(key);
        add_text(j, ",", n++ > 0, text);
        json_constant_text(&plain, name, text);
        add_text(j, ":", 1, text);
        json_constant_text(j, one, text);
    }
    json_array_foreach(value, i, one)
    {
        add_text(j, ",", i > 0, text);
        json_constant_text(j, one, text);
    }
    add_text(j, json_is_object(value) ? "}" : "]", 1, text);
}

void json_constant_text(struct json_grammar *j, const json_t *value, struct buf *text)
{
    struct grammar *g = j->grammar;
    const char *quote = j->style.quote, *quote_bytes = j->style.quote_bytes;
    char number[NUMBER_TEXT_SIZE];
    if (!value) {
        grammar_no_memory(g, "a value");
    } else if (json_is_boolean(value) || json_is_null(value)) {
        const char *word = word_of(j, json_is_null(value)   ? "null"
                                      : json_is_true(value) ? "true"
                                                            : "false");
        add_text(j, word, strlen(word), text);
    } else if (json_is_string(value) && quote) {
        if (strstr(json_string_value(value), quote) ||
            strlen(json_string_value(value)) != json_string_length(value))
            grammar_fail(g, "a string without escapes has no %s", quote);
        add_text(j, quote_bytes, strlen(quote_bytes), text);
        add_text(j, json_string_value(value), json_string_length(value), text);
        add_text(j, quote_bytes, strlen(quote_bytes), text);
    } else if ((j->style.python || quote) && (json_is_array(value) || json_is_object(value))) {
        add_styled(j, value, text);
    } else if (json_is_real(value)) {
        number_text(json_real_value(value), number);
        add_text(j, number, strlen(number), text);
    } else {
        g->failed =
            g->failed || json_append(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17),
                                     text, &g->why) < 0;
    }
}

expr_id json_constant(struct json_grammar *j, const json_t *value)
{
    AUTO(buf_release) struct buf text = {0};
    json_constant_text(j, value, &text);
    const expr_id id = j->grammar->failed ? EXPR_NONE : expr_bytes(j->grammar, text.data, text.len);
    return id;
}

static expr_id digits(struct grammar *g, uint32_t min, uint32_t max)
{
    return expr_repeat(g, expr_range(g, '0', '9'), min, max);
}

/* Numbers without bounds: integers of up to 15 digits, which are exact in every program; numbers of
 * up to 15 digits, up to 15 after the point, and an exponent of up to two digits. */
static expr_id json_integer_any(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(
        g, expr_text(g, "0"),
        EXPR_SEQ(g, EXPR_OPTIONAL(g, expr_text(g, "-")), expr_range(g, '1', '9'), digits(g, 0, 14)));
}

static expr_id json_number_any(struct json_grammar *j)
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
    const expr_id contents = EXPR_SEQ(g, item, json_more(j, item, min, max, 1));
    const expr_id some = json_brackets(j, open, contents, close);
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

static expr_id json_any_array(struct json_grammar *j)
{
    return shared_rule(j, &j->array, "array", array_body);
}

static expr_id value_body(struct json_grammar *j)
{
    struct grammar *g = j->grammar;
    return EXPR_ALT(g, json_any_object(j), json_any_array(j), json_text_string(j, 0, EXPR_MANY),
                    json_number_any(j), json_word(j, "true"), json_word(j, "false"),
                    json_word(j, "null"));
}

expr_id json_any(struct json_grammar *j) { return shared_rule(j, &j->value, "value", value_body); }

/* ---- numbers in a range, and multiples: automata over digits whose states are remainders ---- */

/* Digits that a double keeps; digits of numbers; digits of a bound after the point. */
enum { DIGITS = 15, MOST_DIGITS = 18, MAX_FRACTION = 18, JSON_FACTOR_MAX = 1000 };

struct multiples {
    struct grammar *grammar;
    uint64_t factor;
    size_t fraction; /* digits after the point */
    /* [MOST_DIGITS + 1][factor]: n digits that make a multiple of what begins with a remainder; valid if
     * `known` */
    expr_id *any;
    bool *known;
};

/* n digits, of which the last ones are after the point. */
static expr_id any_digits(const struct multiples *m, size_t n)
{
    const uint32_t after = (uint32_t)size_min(n, m->fraction), before = (uint32_t)n - after;
    const bool point = m->fraction > 0 && n >= m->fraction;
    return EXPR_SEQ(m->grammar, digits(m->grammar, before, before),
                    point ? expr_text(m->grammar, ".") : EXPR_EMPTY, digits(m->grammar, after, after));
}

static expr_id multiple_digits(struct multiples *m, const char *lo, const char *hi, size_t n,
                               uint64_t remainder);

/* Those digits by the first one; digits that the same ones follow are together. */
static expr_id digits_by_first(struct multiples *m, const char *lo, const char *hi, size_t n,
                               uint64_t remainder)
{
    struct grammar *g = m->grammar;
    const expr_id point = n == m->fraction ? expr_text(g, ".") : EXPR_EMPTY;
    const char first = lo ? *lo : '0', last = hi ? *hi : '9';
    struct expr_list list = {0};
    expr_id rest['9' + 1] = {EXPR_NONE};
    for (char d = first; d <= last && !g->failed; d++)
        rest[(size_t)d] =
            multiple_digits(m, lo && d == first ? lo + 1 : NULL, hi && d == last ? hi + 1 : NULL, n - 1,
                            (remainder * 10 + (uint64_t)(d - '0')) % m->factor);
    for (char d = first, end; d <= last && !g->failed; d = end) {
        for (end = (char)(d + 1); end <= last && rest[(size_t)end] == rest[(size_t)d];)
            end++;
        if (rest[(size_t)d] != EXPR_NONE)
            expr_list_add(
                g, &list,
                EXPR_SEQ(g, point, expr_range(g, (uint32_t)d, (uint32_t)end - 1), rest[(size_t)d]));
    }
    return expr_list_alt(g, &list);
}

/* n digits after which the remainder is 0, `remainder` being that of the digits before them. They are at
 * least those at `lo` and at most those at `hi`; NULL: no bound. */
static expr_id multiple_digits(struct multiples *m, const char *lo, const char *hi, size_t n,
                               uint64_t remainder)
{
    struct grammar *g = m->grammar;
    const bool open = !lo && !hi;
    const size_t at = n * m->factor + remainder;
    if (n == 0)
        return remainder == 0 ? EXPR_EMPTY : EXPR_NONE;
    if (!open)
        return digits_by_first(m, lo, hi, n, remainder);
    if (m->known[at])
        return m->any[at];
    expr_id id = m->factor == 1 ? any_digits(m, n) : digits_by_first(m, lo, hi, n, remainder);
    if (m->factor > 1)
        id = expr_as_rule(g, id, "multiple");
    m->known[at] = true;
    m->any[at] = id;
    return id;
}

/* The multiples from lo >= 0 to hi. */
static expr_id magnitudes(struct multiples *m, uint64_t lo, uint64_t hi)
{
    struct grammar *g = m->grammar;
    struct expr_list list = {0};
    uint64_t power = 1; /* the lowest number of n digits */
    for (size_t n = 1; n <= MOST_DIGITS && (power <= hi || n <= m->fraction + 1); n++, power *= 10) {
        const uint64_t from = n == m->fraction + 1 ? 0 : power; /* zeros before the point: one */
        const uint64_t a = lo > from ? lo : from, b = hi < power * 10 - 1 ? hi : power * 10 - 1;
        char low[24], high[24];
        if (n <= m->fraction || a > b)
            continue;
        snprintf(low, sizeof low, "%0*llu", (int)n, (unsigned long long)a);
        snprintf(high, sizeof high, "%0*llu", (int)n, (unsigned long long)b);
        expr_list_add(g, &list, multiple_digits(m, low, high, n, 0));
    }
    return expr_list_alt(g, &list);
}

/* Rounds |x| / power down (`up` false) or up. */
static uint64_t scaled(uint64_t x, uint64_t power, bool up) { return x / power + (up && x % power); }

/* The n / 10 ^ fraction, for multiples n of `factor` >= 1 from lo to hi, which have up to 18 digits, without leading
 * zeros. Zero is 0, or, with `zeros`, 0.00. The grammar fails if the factor is too large. */
static expr_id multiples_between(struct grammar *g, uint64_t factor, size_t fraction, int64_t lo,
                                 int64_t hi, bool zeros)
{
    struct multiples m = {.grammar = g, .factor = factor, .fraction = fraction};
    const int64_t least = zeros ? 0 : 1; /* magnitude that is written in digits */
    uint64_t power = 1;
    expr_id list[3], tail = EXPR_EMPTY;
    size_t n = 0;
    if (lo > hi)
        return EXPR_NONE;
    while (!fraction && m.factor % 10 == 0 && power < 1000000000000000000) {
        m.factor /= 10;
        power *= 10;
        tail = EXPR_SEQ(g, tail, expr_text(g, "0"));
    }
    if (m.factor > JSON_FACTOR_MAX)
        return grammar_fail(g, "a factor (multipleOf) exceeds %d times a power of ten",
                            JSON_FACTOR_MAX);
    m.any = mem_alloc((MOST_DIGITS + 1) * (size_t)m.factor, sizeof *m.any);
    m.known = mem_zalloc((MOST_DIGITS + 1) * (size_t)m.factor, sizeof *m.known);
    if (!m.any || !m.known)
        grammar_no_memory(g, "multiples");
    if (lo <= 0 && hi >= 0 && !zeros)
        list[n++] = expr_text(g, "0");
    if (hi >= least && !g->failed)
        list[n++] = EXPR_SEQ(g,
                             magnitudes(&m, scaled((uint64_t)(lo > least ? lo : least), power, true),
                                        scaled((uint64_t)hi, power, false)),
                             tail);
    if (lo < 0 && !g->failed)
        list[n++] = EXPR_SEQ(g, expr_text(g, "-"),
                             magnitudes(&m, scaled(hi < 0 ? (uint64_t)-hi : 1, power, true),
                                        scaled((uint64_t)-lo, power, false)),
                             tail);
    free(m.any);
    free(m.known);
    return expr_alt(g, list, n);
}

/* ---- bounds ---- */

/* A number digits / 10 ^ fraction. */
struct decimal {
    int64_t digits;
    size_t fraction;
};

/* The shortest decimal of a number; false if it has too many digits. */
static bool read_decimal(const json_t *value, struct decimal *d)
{
    char text[NUMBER_TEXT_SIZE];
    int64_t exponent = 0;
    size_t digits = 0;
    bool negative = false, after = false;
    *d = (struct decimal){0};
    if (json_is_integer(value)) {
        d->digits = json_integer_value(value);
        return d->digits > -1000000000000000000 && d->digits < 1000000000000000000;
    }
    number_text(json_real_value(value), text);
    for (const char *c = text; *c; c++) {
        if (*c == 'e' || *c == 'E') {
            (void)parse_int64(c[1] == '+' ? c + 2 : c + 1, &exponent);
            break;
        }
        negative = negative || *c == '-';
        after = after || *c == '.';
        if (*c < '0' || *c > '9')
            continue;
        if (++digits > 18)
            return false;
        d->digits = d->digits * 10 + (*c - '0');
        d->fraction += after;
    }
    for (; exponent > 0; exponent--) {
        if (d->fraction)
            d->fraction--;
        else if (++digits > 18)
            return false;
        else
            d->digits *= 10;
    }
    for (; d->digits && d->digits % 10 == 0 && d->fraction; d->fraction--)
        d->digits /= 10;
    d->fraction += (size_t)-exponent;
    if (!d->digits)
        d->fraction = 0;
    d->digits = negative ? -d->digits : d->digits;
    return d->fraction <= MAX_FRACTION;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t power_of_10(size_t n)
{
    int64_t power = 1;
    while (n-- > 0)
        power *= 10;
    return power;
}

/* The lowest (`sign` 1) or highest (-1) n with n / 10 ^ fraction inside a bound; false: beyond 18
 * digits. */
static bool scale(const struct decimal *d, bool exclusive, int sign, size_t fraction, int64_t *n)
{
    const int64_t x = sign * d->digits; /* as a lower bound */
    if (fraction >= d->fraction) {
        if (__builtin_mul_overflow(x, power_of_10(fraction - d->fraction), n))
            return false;
        *n += exclusive;
    } else {
        const int64_t unit = power_of_10(d->fraction - fraction);
        *n = exclusive ? floor_div(x, unit) + 1 : -floor_div(-x, unit);
    }
    *n *= sign;
    return *n > -1000000000000000000 && *n < 1000000000000000000;
}

static expr_id too_many_digits(struct grammar *g)
{
    return grammar_fail(g, "a bound of numbers has more than %d digits", DIGITS);
}

static size_t whole_digits(const struct decimal *d)
{
    int64_t whole = d->digits / power_of_10(d->fraction);
    size_t n = 1;
    for (whole = whole < 0 ? -whole : whole; whole > 9; whole /= 10)
        n++;
    return n;
}

/* The n that two bounds of n / 10 ^ fraction include: [*lo, *high]; false: a bound has too many digits. */
static bool scaled_bounds(const struct number_bound *min, const struct number_bound *max,
                          size_t fraction, int64_t *lo, int64_t *hi)
{
    struct decimal low = {0}, high = {0};
    if ((min->value &&
         (!read_decimal(min->value, &low) || !scale(&low, min->exclusive, 1, fraction, lo))) ||
        (max->value &&
         (!read_decimal(max->value, &high) || !scale(&high, max->exclusive, -1, fraction, hi))))
        return false;
    if (!max->value)
        *hi = power_of_10(size_min(18, size_max(DIGITS, whole_digits(&low) + fraction))) - 1;
    if (!min->value)
        *lo = 1 - power_of_10(size_min(18, size_max(DIGITS, whole_digits(&high) + fraction)));
    return true;
}

expr_id json_integer_range(struct json_grammar *j, const struct number_bound *min,
                           const struct number_bound *max)
{
    int64_t lo = 0, hi = 0;
    if (!min->value && !max->value)
        return json_integer_any(j);
    return scaled_bounds(min, max, 0, &lo, &hi) ? multiples_between(j->grammar, 1, 0, lo, hi, true)
                                                : too_many_digits(j->grammar);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Two decimals as multiples of the same power of ten; false: they have too many digits. */
static bool same_fraction(const json_t *x, const json_t *y, int64_t *a, int64_t *b, size_t *fraction)
{
    struct decimal m, n;
    if (!read_decimal(x, &m) || !read_decimal(y, &n))
        return false;
    *fraction = size_max(m.fraction, n.fraction);
    return !__builtin_mul_overflow(m.digits, power_of_10(*fraction - m.fraction), a) &&
           !__builtin_mul_overflow(n.digits, power_of_10(*fraction - n.fraction), b);
}

bool json_is_multiple(const json_t *value, const json_t *factor)
{
    int64_t a, b;
    size_t fraction;
    return same_fraction(value, factor, &a, &b, &fraction) && b && a % b == 0;
}

json_t *json_common_multiple(const json_t *x, const json_t *y)
{
    enum { EXACT_POWER = 22 }; /* of ten, as a double */
    int64_t a, b, product;
    size_t fraction;
    if (!same_fraction(x, y, &a, &b, &fraction) || a <= 0 || b <= 0 ||
        __builtin_mul_overflow(a / common_divisor(a, b), b, &product))
        return NULL;
    if (!fraction)
        return json_integer(product);
    return fraction <= EXACT_POWER && product < (int64_t)1 << 53
               ? json_real((double)product / (double)power_of_10(fraction))
               : NULL;
}

/* Multiples with up to as many digits after the point as the factor has: those with fewer are multiples of a larger
 * factor. */
expr_id json_number_multiples(struct json_grammar *j, const json_t *factor, bool integer,
                              const struct number_bound *min, const struct number_bound *max)
{
    struct grammar *g = j->grammar;
    struct decimal d;
    expr_id list[DIGITS];
    if (!read_decimal(factor, &d) || d.fraction >= DIGITS)
        return grammar_fail(g, "a factor (multipleOf) has more than %d digits", DIGITS);
    for (size_t m = 0; m <= d.fraction; m++) {
        int64_t lo = 0, hi = 0;
        const int64_t own = d.digits / common_divisor(d.digits, power_of_10(d.fraction - m));
        if (!scaled_bounds(min, max, m, &lo, &hi))
            return too_many_digits(g);
        list[m] = integer && m ? EXPR_NONE : multiples_between(g, (uint64_t)own, m, lo, hi, false);
    }
    return expr_alt(g, list, d.fraction + 1);
}

expr_id json_number_range(struct json_grammar *j, const struct number_bound *min,
                          const struct number_bound *max)
{
    enum { OPEN_WHOLE = 9, OPEN_FRACTION = 6 }; /* digits where no bound says more */
    struct grammar *g = j->grammar;
    struct decimal low = {0}, high = {0};
    struct expr_list list = {0};
    if (!min->value && !max->value)
        return json_number_any(j);
    if ((min->value && !read_decimal(min->value, &low)) ||
        (max->value && !read_decimal(max->value, &high)))
        return too_many_digits(g);
    size_t whole = size_max(whole_digits(&low), whole_digits(&high));
    if (!min->value || !max->value)
        whole = size_max(whole + (whole < DIGITS), OPEN_WHOLE);
    if (whole > DIGITS)
        return too_many_digits(g);
    /* bounds with more digits lose them to the inside of the range */
    const size_t given = size_max(low.fraction, high.fraction);
    const size_t fraction = size_min(size_max(given, OPEN_FRACTION), DIGITS - whole);
    const struct decimal most = {power_of_10(whole) - 1, 0}, least = {1 - power_of_10(whole), 0};
    for (size_t m = 0; m <= fraction; m++) {
        int64_t lo, hi;
        if (!scale(min->value ? &low : &least, min->value && min->exclusive, 1, m, &lo) ||
            !scale(max->value ? &high : &most, max->value && max->exclusive, -1, m, &hi)) {
            expr_list_release(&list);
            return too_many_digits(g);
        }
        expr_list_add(g, &list, multiples_between(g, 1, m, lo, hi, true));
    }
    return expr_list_alt(g, &list);
}
