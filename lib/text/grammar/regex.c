/* Parses regular expressions. What cannot be decided by an automaton alone (backreferences, look-around,
 * word boundaries) is refused. */
#include "text/grammar/regex.h"

#include "text/utf8.h"

enum {
    MAX_DEPTH = 128,     /* of groups */
    MAX_COUNT = 1 << 20, /* of repetitions */
    END_OF_TEXT = UINT32_MAX,
};

struct regex {
    struct json_grammar *json;
    struct grammar *grammar;
    const char *text;
    size_t len, at;
    unsigned use;  /* of enum regex_use */
    uint32_t open; /* the most that a repetition without end has */
    size_t depth;
};

static expr_id refuse(struct regex *r, size_t at, const char *what)
{
    return grammar_fail(r->grammar, "regular expression, character %zu: %s", at + 1, what);
}

static bool at_end(const struct regex *r) { return r->at >= r->len || r->grammar->failed; }

static bool looks_at(const struct regex *r, const char *word)
{
    const size_t n = strlen(word);
    return r->len - r->at >= n && memcmp(r->text + r->at, word, n) == 0;
}

static bool regex_accept(struct regex *r, const char *word)
{
    if (r->at > r->len || !looks_at(r, word))
        return false;
    r->at += strlen(word);
    return true;
}

static uint32_t next_code(struct regex *r)
{
    uint32_t code;
    if (at_end(r))
        return END_OF_TEXT;
    r->at += utf8_decode(r->text + r->at, &code);
    return code;
}

/* A character of a set, which is released. */
static expr_id class_of(struct regex *r, struct char_class *set)
{
    if (!(r->use & REGEX_JSON))
        return char_class_expr(r->grammar, set);
    char_class_sort(set);
    const expr_id id = r->grammar->failed ? EXPR_NONE : json_char(r->json, set);
    char_class_release(set);
    return id;
}

static expr_id char_of(struct regex *r, uint32_t code)
{
    struct char_class set = {0};
    char_class_add(r->grammar, &set, code, code);
    return class_of(r, &set);
}

/* ---- escapes ---- */

/* Reads `digits` hexadecimal digits; END_OF_TEXT if there are not as many. */
static uint32_t read_hex(struct regex *r, size_t digits)
{
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        const int value = r->at + i < r->len ? hex_digit(r->text[r->at + i]) : -1;
        if (value < 0)
            return END_OF_TEXT;
        code = code * 16 + (uint32_t)value;
    }
    r->at += digits;
    return code;
}

static uint32_t read_unicode(struct regex *r)
{
    uint32_t code = 0;
    if (regex_accept(r, "{")) {
        size_t n = 0;
        while (r->at < r->len && hex_digit(r->text[r->at]) >= 0 && n++ < 6)
            code = code * 16 + (uint32_t)hex_digit(r->text[r->at++]);
        return n && regex_accept(r, "}") && code <= CODE_MAX ? code : END_OF_TEXT;
    }
    code = read_hex(r, 4);
    if (code >= 0xd800 && code <= 0xdbff && regex_accept(r, "\\u")) { /* a pair of surrogates */
        const uint32_t low = read_hex(r, 4);
        return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
                                              : END_OF_TEXT;
    }
    return code;
}

/* Reads what follows a backslash. Adds it to `set`; *single is the character, if it is one, or
 * END_OF_TEXT. `negative`: the set will be negated. */
static void read_escape(struct regex *r, struct char_class *set, bool negative, uint32_t *single)
{
    static const char letters[] = "tnrfv0", codes[] = "\t\n\r\f\v";
    const size_t start = r->at - 1;
    const uint32_t c = next_code(r);
    const char *letter = c < 0x80 && c ? strchr(letters, (int)c) : NULL;
    const bool wide = r->use & REGEX_WIDE;
    uint32_t code = c;
    *single = END_OF_TEXT;
    if (c == END_OF_TEXT) {
        refuse(r, start, "there is nothing after the backslash");
        return;
    }
    if (c < 0x80 && c && strchr("dws", (int)c)) {
        char_class_add_shorthand(r->grammar, set, (char)c, negative != wide);
        return;
    }
    if (c < 0x80 && c && strchr("DWS", (int)c)) {
        struct char_class rest = {0};
        char_class_add_shorthand(r->grammar, &rest, (char)(c + 'a' - 'A'), negative == wide);
        char_class_negate(r->grammar, &rest);
        for (size_t i = 0; i < rest.n; i++)
            char_class_add(r->grammar, set, rest.range[i].first, rest.range[i].last);
        char_class_release(&rest);
        return;
    }
    if (letter)
        code = (uint32_t)(unsigned char)codes[letter - letters];
    else if (c == 'x')
        code = read_hex(r, 2);
    else if (c == 'u')
        code = read_unicode(r);
    else if (c < 0x80 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9'))) {
        refuse(r, start,
               c >= '1' && c <= '9'               ? "backreferences are not supported"
               : c == 'b' || c == 'B'             ? "word boundaries (\\b, \\B) are not supported"
               : c == 'p' || c == 'P'             ? "Unicode properties (\\p) are not supported"
               : c == 'k'                         ? "backreferences are not supported"
               : c == 'A' || c == 'z' || c == 'Z' ? "write ^ and $ for start and end"
                                                  : "this escape is not known");
        return;
    }
    if (code == END_OF_TEXT || (code >= 0xd800 && code <= 0xdfff)) {
        refuse(r, start, "this is not a character's code");
        return;
    }
    *single = code;
    char_class_add(r->grammar, set, code, code);
}

/* ---- classes ---- */

/* Reads one member of a class in brackets: a character, or a set. */
static void read_member(struct regex *r, struct char_class *set, bool negative, uint32_t *single)
{
    if (looks_at(r, "[:") || looks_at(r, "[=") || looks_at(r, "[.")) {
        refuse(r, r->at,
               "POSIX classes are not supported: write the characters, or escape the bracket");
        return;
    }
    const uint32_t c = next_code(r);
    if (c == '\\' && regex_accept(r, "b")) { /* a backspace, in brackets */
        *single = '\b';
        char_class_add(r->grammar, set, '\b', '\b');
    } else if (c == '\\') {
        read_escape(r, set, negative, single);
    } else {
        *single = c;
        char_class_add(r->grammar, set, c, c);
    }
}

static expr_id parse_class(struct regex *r)
{
    const size_t start = r->at - 1;
    const bool negative = regex_accept(r, "^");
    struct char_class set = {0};
    if (looks_at(r, "]"))
        refuse(r, start, "the class is empty; write \\] for a bracket in it");
    while (!at_end(r) && !regex_accept(r, "]")) {
        uint32_t first = END_OF_TEXT, last = END_OF_TEXT;
        const size_t from = r->at;
        read_member(r, &set, negative, &first);
        if (at_end(r) || !looks_at(r, "-") || looks_at(r, "-]"))
            continue;
        r->at++;
        if (at_end(r))
            break;
        read_member(r, &set, negative, &last);
        if (first == END_OF_TEXT || last == END_OF_TEXT || first > last)
            refuse(r, from, "this is not a range of characters");
        else
            char_class_add(r->grammar, &set, first, last);
    }
    if (!r->grammar->failed && r->text[r->at - 1] != ']')
        refuse(r, start, "the class has no end: ] is missing");
    if (negative)
        char_class_negate(r->grammar, &set);
    return class_of(r, &set);
}

static expr_id parse_dot(struct regex *r)
{
    struct char_class set = {0};
    char_class_add(r->grammar, &set, '\n', '\n');
    if (!(r->use & REGEX_WIDE)) {
        char_class_add(r->grammar, &set, '\r', '\r');
        char_class_add(r->grammar, &set, 0x2028, 0x2029);
    }
    char_class_negate(r->grammar, &set);
    return class_of(r, &set);
}

/* ---- groups, repetitions, sequences ---- */

/* Which ends of a text an alternative is tied to. */
struct anchors {
    bool start, end;
};

static expr_id parse_alternatives(struct regex *r, unsigned use);

static expr_id parse_group(struct regex *r)
{
    const size_t start = r->at - 1;
    if (looks_at(r, "?=") || looks_at(r, "?!") || looks_at(r, "?<=") || looks_at(r, "?<!"))
        return refuse(r, start, "look-around is not supported");
    if (regex_accept(r, "?<") || regex_accept(r, "?P<")) {
        while (!at_end(r) && r->text[r->at] != '>')
            r->at++;
        if (!regex_accept(r, ">"))
            return refuse(r, start, "the group's name has no end");
    } else if (looks_at(r, "?") && !regex_accept(r, "?:")) {
        return refuse(r, start, "this kind of group is not supported");
    }
    if (++r->depth > MAX_DEPTH)
        return refuse(r, start, "groups are nested too deeply");
    const expr_id id = parse_alternatives(r, REGEX_WHOLE);
    r->depth--;
    if (!r->grammar->failed && !regex_accept(r, ")"))
        return refuse(r, start, "the group has no end: ) is missing");
    return id;
}

static expr_id parse_escape(struct regex *r)
{
    struct char_class set = {0};
    uint32_t single;
    read_escape(r, &set, false, &single);
    return class_of(r, &set);
}

static expr_id parse_atom(struct regex *r)
{
    const size_t start = r->at;
    const uint32_t c = next_code(r);
    switch (c) {
    case '(': return parse_group(r);
    case '[': return parse_class(r);
    case '.': return parse_dot(r);
    case '\\': return parse_escape(r);
    case '*':
    case '+':
    case '?': return refuse(r, start, "there is nothing to repeat");
    case '^':
    case '$':
        return refuse(r, start,
                      "^ and $ are supported at the ends of the expression and of its "
                      "outermost alternatives only");
    default: return char_of(r, c);
    }
}

/* Reads the number at *at of a repetition in braces. */
static bool read_count(const struct regex *r, size_t *at, uint32_t *count)
{
    const size_t start = *at;
    for (*count = 0; *at < r->len && r->text[*at] >= '0' && r->text[*at] <= '9'; ++*at)
        *count = *count > MAX_COUNT ? *count : *count * 10 + (uint32_t)(r->text[*at] - '0');
    return *at > start;
}

/* Reads {n}, {n,} or {n,m}; anything else is plain text. */
static bool read_braces(struct regex *r, uint32_t *min, uint32_t *max)
{
    size_t at = r->at + 1;
    if (!looks_at(r, "{") || !read_count(r, &at, min))
        return false;
    *max = *min;
    if (at < r->len && r->text[at] == ',') {
        at++;
        if (!read_count(r, &at, max))
            *max = EXPR_MANY;
    }
    if (at >= r->len || r->text[at] != '}')
        return false;
    if (*min > MAX_COUNT || (*max > MAX_COUNT && *max != EXPR_MANY))
        refuse(r, r->at, "the repetition is too long: at most 1048576 is supported");
    else if (*min > *max)
        refuse(r, r->at, "the repetition's lower bound is above the upper one");
    r->at = at + 1;
    return true;
}

static expr_id parse_repeated(struct regex *r)
{
    expr_id id = parse_atom(r);
    const size_t start = r->at;
    uint32_t min, max;
    if (at_end(r))
        return id;
    if (regex_accept(r, "*"))
        min = 0, max = EXPR_MANY;
    else if (regex_accept(r, "+"))
        min = 1, max = EXPR_MANY;
    else if (regex_accept(r, "?"))
        min = 0, max = 1;
    else if (!read_braces(r, &min, &max))
        return id;
    id = expr_repeat(r->grammar, id, min, regex_most(min, max, r->open));
    (void)regex_accept(r, "?"); /* lazy: the same texts match */
    if (!at_end(r) && strchr("*+?", r->text[r->at]) && r->text[r->at])
        refuse(r, start,
               "a repetition of a repetition needs a group; possessive ones are not supported");
    return id;
}

static expr_id parse_sequence(struct regex *r, bool outermost, struct anchors *anchors)
{
    struct expr_list list = {0};
    *anchors = (struct anchors){0};
    while (outermost && regex_accept(r, "^"))
        anchors->start = true;
    while (!at_end(r) && !looks_at(r, "|") && (outermost || !looks_at(r, ")"))) {
        if (outermost && looks_at(r, "$") && (r->at + 1 == r->len || r->text[r->at + 1] == '|')) {
            r->at++;
            anchors->end = true;
        } else if (outermost && looks_at(r, ")")) {
            refuse(r, r->at, "there is no group to end here; write \\) for the character");
        } else {
            expr_list_add(r->grammar, &list, parse_repeated(r));
        }
    }
    return expr_list_seq(r->grammar, &list);
}

/* Any text, for the ends that a search leaves open. */
static expr_id anything(struct regex *r)
{
    struct char_class all = {0};
    char_class_add(r->grammar, &all, 0, CODE_MAX);
    return expr_repeat(r->grammar, class_of(r, &all), 0, r->open);
}

static expr_id parse_alternatives(struct regex *r, unsigned use)
{
    struct expr_list list = {0};
    const bool outermost = r->depth == 0;
    do {
        struct anchors anchors;
        expr_id id = parse_sequence(r, outermost, &anchors);
        if (use & REGEX_SEARCH && !anchors.start)
            id = EXPR_SEQ(r->grammar, anything(r), id);
        if (use & (REGEX_SEARCH | REGEX_PREFIX) && !anchors.end)
            id = EXPR_SEQ(r->grammar, id, anything(r));
        expr_list_add(r->grammar, &list, id);
    } while (!at_end(r) && regex_accept(r, "|"));
    return expr_list_alt(r->grammar, &list);
}

expr_id regex_parse_open(struct json_grammar *json, const char *text, size_t len, unsigned use,
                         uint32_t open)
{
    struct regex r = {
        .json = json, .grammar = json->grammar, .text = text, .len = len, .use = use, .open = open};
    const size_t valid = utf8_valid(text, len);
    if (valid != len)
        return refuse(&r, valid, "the expression is not valid UTF-8");
    return parse_alternatives(&r, use);
}

expr_id regex_parse(struct json_grammar *json, const char *text, size_t len, unsigned use)
{
    return regex_parse_open(json, text, len, use, EXPR_MANY);
}
