/* Splits a template into tokens. */
#include "text/jinja/jinja_lexer.h"

#include "text/utf8.h"

enum { MOST_BRACKETS = 256 };

struct lexer {
    struct jinja_state *j;
    const char *text;
    size_t len, at;
    bool line_start; /* the last token ended with a newline, or nothing was read */
    struct jt_list out;
};

static void push_token(struct lexer *l, struct jt token)
{
    l->out.token = jinja_grow(l->j, l->out.token, &l->out.cap, l->out.n, sizeof token);
    l->out.token[l->out.n++] = token;
}

static bool has(const struct lexer *l, size_t at, const char *what)
{
    const size_t len = strlen(what);
    return len <= l->len - at && memcmp(l->text + at, what, len) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    while (at < l->len) {
        uint32_t code;
        const unsigned len = utf8_decode(l->text + at, &code);
        if (!js_is_space(code))
            break;
        at += len;
    }
    return at;
}

/* Literal text up to a tag whose sign is '-', '+' or 0. Blanks before a tag that is alone in its line
 * so far are dropped, except before {{. */
static void push_text(struct lexer *l, size_t start, size_t end, char sign, bool print)
{
    const struct js *text = js_new(l->j, l->text + start, end - start, false);
    if (sign == '-') {
        text = js_strip(l->j, text, NULL, JS_RIGHT);
    } else if (sign != '+' && !print) {
        const char *line = memrchr(text->text, '\n', text->len);
        const size_t from = line ? (size_t)(line - text->text) + 1 : 0;
        const struct js *rest = js_part(l->j, text, from, text->len);
        if ((from || l->line_start) && js_strip(l->j, rest, NULL, JS_LEFT)->len == 0)
            text = js_part(l->j, text, 0, from);
    }
    if (text->len)
        push_token(l, (struct jt){.kind = JT_TEXT, .pos = start, .value = jv_string(text)});
}

/* The end of a tag, "%}" or "#}", at offset `at`, with its sign: moves past it, past white space after
 * '-', and past a newline unless the sign is '+'. False: it is not there. */
static bool close_tag(struct lexer *l, size_t at, const char *end)
{
    const bool minus = at < l->len && l->text[at] == '-' && has(l, at + 1, end);
    const bool plus = at < l->len && l->text[at] == '+' && has(l, at + 1, end);
    if (!minus && !plus && !has(l, at, end))
        return false;
    at += strlen(end) + (minus || plus);
    if (minus)
        at = skip_space(l, at);
    else if (!plus && at < l->len && l->text[at] == '\n')
        at++;
    l->line_start = l->text[at - 1] == '\n';
    l->at = at;
    return true;
}

static void skip_comment(struct lexer *l)
{
    for (size_t at = l->at; at < l->len; at++)
        if (close_tag(l, at, "#}"))
            return;
    l->j->pos = l->at;
    jinja_fail(l->j, "a comment does not end");
}

/* After "{%" and its sign: true, and `after` is behind the tag, if the tag is {% raw %}. */
static bool is_raw(const struct lexer *l, size_t at, const char *word, size_t *after)
{
    at = skip_space(l, at);
    if (!has(l, at, word))
        return false;
    *after = skip_space(l, at + strlen(word));
    return true;
}

/* Text between {% raw %} and {% endraw %}. */
static void lex_raw(struct lexer *l, size_t start)
{
    for (size_t at = start; at < l->len; at++) {
        size_t after;
        if (!has(l, at, "{%"))
            continue;
        const char sign = at + 2 < l->len && strchr("-+", l->text[at + 2]) ? l->text[at + 2] : 0;
        if (!is_raw(l, at + 2 + (sign != 0), "endraw", &after))
            continue;
        const struct lexer before = *l;
        if (!close_tag(l, after, "%}"))
            continue;
        const bool line_start = l->line_start;
        const size_t end = l->at;
        l->line_start = before.line_start;
        push_text(l, start, at, sign, false);
        l->line_start = line_start;
        l->at = end;
        return;
    }
    l->j->pos = start;
    jinja_fail(l->j, "a raw block does not end");
}

/* ---- inside of tags ---- */

static uint32_t read_hex(struct lexer *l, const char *digits, size_t n, size_t left)
{
    uint32_t code = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = i < left ? hex_digit(digits[i]) : -1;
        if (digit < 0)
            jinja_fail(l->j, "an escape in a string lacks digits");
        code = code * 16 + (uint32_t)digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        jinja_fail(l->j, "an escape in a string is not a character");
    return code;
}

/* Appends the character that an escape stands for; returns the length after the backslash. */
static size_t unescape(struct lexer *l, struct js_builder *b, const char *at, size_t left)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *at, *known = c ? strchr(from, c) : NULL;
    if (known) {
        js_add_char(b, (unsigned char)to[known - from], false);
        return 1;
    }
    if (c == '\n')
        return 1;
    if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        js_add_char(b, read_hex(l, at + 1, n, left - 1), false);
        return n + 1;
    }
    if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t n = 0;
        for (; n < 3 && n < left && at[n] >= '0' && at[n] <= '7'; n++)
            code = code * 8 + (uint32_t)(at[n] - '0');
        js_add_char(b, code, false);
        return n;
    }
    if (c == 'N')
        jinja_fail(l->j, "the escape \\N is not known");
    js_add(b, "\\", 1, false); /* as in Python, an unknown escape is text */
    return 0;
}

static void lex_string(struct lexer *l)
{
    const char quote = l->text[l->at];
    const size_t start = l->at + 1;
    struct js_builder b = {.j = l->j};
    for (size_t at = start; at < l->len && l->text[at] != quote;) {
        size_t len = 1;
        if (l->text[at] != '\\')
            js_add(&b, l->text + at, 1, false);
        else if (at + 1 < l->len)
            len = 1 + unescape(l, &b, l->text + at + 1, l->len - at - 1);
        at += len;
        l->at = at;
    }
    l->at = size_max(l->at, start);
    if (l->at >= l->len || l->text[l->at] != quote)
        jinja_fail(l->j, "a string does not end");
    l->at++;
    push_token(l, (struct jt){.kind = JT_STRING, .pos = start - 1, .value = jv_string(js_done(&b))});
}

/* The end of digits of a base, among which single underscores may be. */
static size_t digits_at(const struct lexer *l, size_t at, int base)
{
    const size_t start = at;
    for (; at < l->len; at++) {
        const bool joins = l->text[at] == '_' && at > start && l->text[at - 1] != '_' &&
                           at + 1 < l->len && hex_digit(l->text[at + 1]) >= 0 &&
                           hex_digit(l->text[at + 1]) < base;
        if (!joins && (hex_digit(l->text[at]) < 0 || hex_digit(l->text[at]) >= base))
            break;
    }
    return at;
}

/* The base of a number that begins with 0x, 0o or 0b, and digits: 16, 8 or 2; else 10. */
static int base_at(const struct lexer *l, size_t at)
{
    static const char letters[] = "xob", bases[] = {16, 8, 2};
    const char *letter = l->text[at] == '0' && at + 2 < l->len && l->text[at + 1]
                             ? strchr(letters, l->text[at + 1] | 0x20)
                             : NULL;
    const int base = letter ? bases[letter - letters] : 10;
    const size_t first = at + 2 + (letter && l->text[at + 2] == '_');
    return letter && digits_at(l, first, base) > first ? base : 10;
}

static void lex_number(struct lexer *l)
{
    const size_t start = l->at;
    const int base = base_at(l, start);
    size_t end = digits_at(l, base == 10 ? start : start + 2 + (l->text[start + 2] == '_'), base),
           n = 0;
    bool real = false;
    char text[68], *rest;
    if (base == 10 && end < l->len && l->text[end] == '.' && digits_at(l, end + 1, 10) > end + 1) {
        end = digits_at(l, end + 1, 10);
        real = true;
    }
    if (base == 10 && end < l->len && (l->text[end] == 'e' || l->text[end] == 'E')) {
        const size_t sign = end + 1 < l->len && strchr("+-", l->text[end + 1]) ? 1 : 0;
        const size_t after = digits_at(l, end + 1 + sign, 10);
        if (after > end + 1 + sign) {
            end = after;
            real = true;
        }
    }
    for (size_t at = base == 10 ? start : start + 2; at < end; at++)
        if (l->text[at] != '_' && n + 1 < sizeof text)
            text[n++] = l->text[at];
    text[n] = 0;
    errno = 0;
    const struct jv value = real ? jv_float(strtod(text, &rest)) : jv_int(strtoll(text, &rest, base));
    if ((errno && !real) || n + 1 == sizeof text)
        jinja_fail(l->j, "a number is too long");
    if (base == 10 && !real && n > 1 && text[0] == '0' && strspn(text, "0") != n)
        jinja_fail(l->j, "an integer begins with 0");
    push_token(l, (struct jt){.kind = JT_NUMBER, .pos = start, .value = value});
    l->at = end;
}

static bool lex_name(struct lexer *l)
{
    size_t at = l->at;
    while (at < l->len) {
        uint32_t code;
        const unsigned len = utf8_decode(l->text + at, &code);
        if (code != '_' && !utf8_is_word(code))
            break;
        at += len;
    }
    if (at == l->at)
        return false;
    const struct js *name = js_new(l->j, l->text + l->at, at - l->at, false);
    push_token(l, (struct jt){.kind = JT_NAME, .pos = l->at, .value = jv_string(name)});
    l->at = at;
    return true;
}

static bool lex_sign(struct lexer *l)
{
    static const char *const signs[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ","};
    for (size_t i = 0; i < ARRAY_LEN(signs); i++)
        if (has(l, l->at, signs[i])) {
            struct jt token = {.kind = JT_SIGN, .pos = l->at};
            memcpy(token.sign, signs[i], strlen(signs[i]));
            push_token(l, token);
            l->at += strlen(signs[i]);
            return true;
        }
    return false;
}

/* Keeps the stack of open brackets, inside of which "}}" and "%}" do not end a tag. */
static void balance(struct lexer *l, char *open, size_t *n)
{
    static const char left[] = "([{", right[] = ")]}";
    const char sign = l->out.token[l->out.n - 1].sign[0];
    const char *opens = strchr(left, sign), *closes = strchr(right, sign);
    if (opens && *n == MOST_BRACKETS)
        jinja_fail(l->j, "more than %d brackets are open", MOST_BRACKETS);
    if (opens)
        open[(*n)++] = right[opens - left];
    if (closes && (*n == 0 || open[--*n] != sign))
        jinja_fail(l->j, "unexpected \"%c\"", sign);
}

static void lex_tag(struct lexer *l, const char *end)
{
    char open[MOST_BRACKETS];
    size_t n = 0;
    const size_t start = l->at;
    for (;;) {
        l->at = skip_space(l, l->at);
        l->j->pos = l->at;
        if (l->at >= l->len) {
            l->j->pos = start;
            jinja_fail(l->j, "a tag does not end: \"%s\" is expected", end);
        }
        const size_t pos = l->at;
        if (n == 0 && end[0] == '%' && close_tag(l, l->at, end)) {
            push_token(l, (struct jt){.kind = JT_CLOSE, .pos = pos});
            return;
        }
        if (n == 0 && end[0] == '}' && (has(l, l->at, "}}") || has(l, l->at, "-}}"))) {
            const bool minus = l->text[l->at] == '-';
            l->at = minus ? skip_space(l, l->at + 3) : l->at + 2;
            l->line_start = l->text[l->at - 1] == '\n';
            push_token(l, (struct jt){.kind = JT_CLOSE, .pos = pos});
            return;
        }
        const char c = l->text[l->at];
        if (c >= '0' && c <= '9')
            lex_number(l);
        else if (c == '"' || c == '\'')
            lex_string(l);
        else if (!lex_name(l)) {
            if (!lex_sign(l))
                jinja_fail(l->j, "unexpected character \"%.*s\"",
                           utf8_step(l->text + l->at, l->len - l->at), l->text + l->at);
            balance(l, open, &n);
        }
    }
}

/* Reads the tag at offset `at`, whose second character is `type`, and the text before it. */
static void lex_at(struct lexer *l, size_t at, char type)
{
    const size_t start = l->at;
    const char sign = at + 2 < l->len && strchr("-+", l->text[at + 2]) ? l->text[at + 2] : 0;
    const size_t inner = at + 2 + (sign != 0);
    size_t after;
    push_text(l, start, at, sign, type == '{');
    l->at = inner;
    l->line_start = false;
    l->j->pos = at;
    if (type == '#') {
        skip_comment(l);
        return;
    }
    if (type == '%' && is_raw(l, inner, "raw", &after) &&
        (has(l, after, "%}") || has(l, after, "-%}"))) {
        const size_t end = l->text[after] == '-' ? skip_space(l, after + 3) : after + 2;
        l->line_start = l->text[end - 1] == '\n';
        lex_raw(l, end);
        return;
    }
    push_token(l, (struct jt){.kind = type == '%' ? JT_BLOCK : JT_PRINT, .pos = at});
    lex_tag(l, type == '%' ? "%}" : "}}");
}

struct jt_list jinja_lex(struct jinja_state *j)
{
    struct lexer l = {.j = j, .text = j->source, .len = j->source_len, .line_start = true};
    while (l.at < l.len) {
        size_t at = l.at;
        while (at + 1 < l.len &&
               !(l.text[at] == '{' && l.text[at + 1] && strchr("{%#", l.text[at + 1])))
            at++;
        jinja_work(j, 1);
        if (at + 1 >= l.len) {
            push_text(&l, l.at, l.len, '+', false);
            break;
        }
        lex_at(&l, at, l.text[at + 1]);
    }
    push_token(&l, (struct jt){.kind = JT_END, .pos = l.len});
    return l.out;
}
