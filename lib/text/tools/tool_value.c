/* Values of arguments as compact JSON. */
#include "text/tools/tool_value.h"

#include <ctype.h>

#include "text/utf8.h"

enum { EXPECTS_VALUE, EXPECTS_ELEMENT, EXPECTS_KEY, EXPECTS_MEMBER, EXPECTS_COLON, EXPECTS_NEXT };
enum { WORD_BYTES = 1024, OTHER_QUOTE = 1 };

int value_add_text(struct buf *out, const char *text, size_t len, struct err *err)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t plain = 0;
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        const char *at = c ? strchr(escaped, c) : NULL;
        if (!at && c >= 0x20)
            continue;
        if (buf_add(out, text + plain, i - plain, err) < 0 ||
            (at ? buf_addf(out, err, "\\%c", letters[at - escaped])
                : buf_addf(out, err, "\\u%04x", c)) < 0)
            return -1;
        plain = i + 1;
    }
    return buf_add(out, text + plain, len - plain, err);
}

static int add_code_point(struct buf *out, uint32_t code, struct err *err)
{
    char bytes[UTF8_MAX];
    if (code >= 0xd800 && code < 0xe000)
        return buf_addf(out, err, "\\u%04x", code);
    return value_add_text(out, bytes, utf8_write(code, bytes), err);
}

/* The number of `digits` hexadecimal digits at text[len]: VALUE_DONE, VALUE_MORE or VALUE_BAD. */
static int read_hex(const char *text, size_t len, size_t digits, uint32_t *code)
{
    *code = 0;
    for (size_t i = 0; i < digits; i++) {
        if (i >= len)
            return VALUE_MORE;
        if (hex_digit(text[i]) < 0)
            return VALUE_BAD;
        *code = *code << 4 | (uint32_t)hex_digit(text[i]);
    }
    return VALUE_DONE;
}

/* Joins the low half of a surrogate pair, if it follows the escape of *size bytes. */
static int read_low_surrogate(const char *text, size_t len, size_t *size, uint32_t *code)
{
    static const char start[] = "\\u";
    uint32_t low;
    for (size_t i = 0; i < 2; i++) {
        if (*size + i == len)
            return VALUE_MORE;
        if (text[*size + i] != start[i])
            return VALUE_DONE;
    }
    const int got = read_hex(text + *size + 2, len - *size - 2, 4, &low);
    if (got == VALUE_MORE)
        return VALUE_MORE;
    if (got == VALUE_DONE && low >= 0xdc00 && low < 0xe000) {
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
        *size += 6;
    }
    return VALUE_DONE;
}

/* Reads the escape at text[len], of *size bytes. *code is UINT32_MAX if it is no character: the backslash stays. */
static int read_escape(enum value_syntax syntax, const char *text, size_t len, size_t *size,
                       uint32_t *code)
{
    static const char json[] = "\"\\/bfnrt", json_codes[] = "\"\\/\b\f\n\r\t";
    static const char python[] = "'\"\\bfnrtav0", python_codes[] = "'\"\\\b\f\n\r\t\a\v";
    const bool is_python = syntax == VALUE_PYTHON;
    if (len < 2)
        return VALUE_MORE;
    const char *names = is_python ? python : json, *at = text[1] ? strchr(names, text[1]) : NULL;
    size_t digits = text[1] == 'u' ? 4 : !is_python ? 0 : text[1] == 'x' ? 2 : text[1] == 'U' ? 8 : 0;
    *size = 2;
    if (at) {
        *code = (unsigned char)(is_python ? python_codes : json_codes)[at - names];
        return VALUE_DONE;
    }
    if (!digits) {
        *code = UINT32_MAX;
        return is_python && (unsigned char)text[1] >= 0x20 && (unsigned char)text[1] < 0x80 ? VALUE_DONE
                                                                                            : VALUE_BAD;
    }
    const int got = read_hex(text + 2, len - 2, digits, code);
    *size += digits;
    if (got != VALUE_DONE)
        return got;
    if (*code > 0x10ffff)
        return VALUE_BAD;
    return *code >= 0xd800 && *code < 0xdc00 ? read_low_surrogate(text, len, size, code) : VALUE_DONE;
}

/* ---- the value ---- */

/* What follows a value, or the colon of a key. */
static int end_element(struct value_reader *r)
{
    r->expects = r->is_key ? EXPECTS_COLON : EXPECTS_NEXT;
    r->is_key = false;
    return r->depth || r->expects == EXPECTS_COLON ? VALUE_MORE : VALUE_DONE;
}

/* Begins a key or a value: writes the comma before it. */
static int begin_element(struct value_reader *r, struct buf *out, struct err *err)
{
    r->is_key = r->expects == EXPECTS_KEY || r->expects == EXPECTS_MEMBER;
    const bool comma = r->comma;
    r->comma = false;
    return comma ? buf_add(out, ",", 1, err) : 0;
}

/* Reads on in a string. VALUE_MORE with *taken == len: all of text[len] was read. */
static int read_string(struct value_reader *r, const char *text, size_t len, size_t *taken,
                       struct buf *out, struct err *err)
{
    size_t i = *taken, plain = i;
    int rc = VALUE_MORE;
    const bool other = r->delimiter == OTHER_QUOTE;
    const size_t quote = other ? strlen(r->quote) : 1;
    while (i < len && rc == VALUE_MORE) {
        const size_t left = len - i;
        uint32_t code;
        size_t size;
        if (other ? memcmp(text + i, r->quote, size_min(left, quote)) == 0 : text[i] == r->delimiter) {
            rc = left < quote ? VALUE_MORE : VALUE_DONE;
            break;
        }
        if (other || text[i] != '\\') {
            i++;
            continue;
        }
        if (value_add_text(out, text + plain, i - plain, err) < 0)
            return -1;
        plain = *taken = i;
        rc = read_escape(r->syntax, text + i, left, &size, &code);
        if (rc != VALUE_DONE)
            return rc;
        if ((code == UINT32_MAX ? value_add_text(out, text + i, size, err)
                                : add_code_point(out, code, err)) < 0)
            return -1;
        i += size;
        plain = i;
        rc = VALUE_MORE;
    }
    if (value_add_text(out, text + plain, i - plain, err) < 0)
        return -1;
    *taken = rc == VALUE_DONE ? i + quote : i;
    if (rc != VALUE_DONE)
        return rc;
    r->delimiter = 0;
    return buf_add(out, "\"", 1, err) < 0 ? -1 : end_element(r);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || (c && strchr("+-._$", c)); }

/* True if a word is a number of JSON. */
static bool is_number(const char *text, size_t len)
{
    size_t i = text[0] == '-', digits = i;
    while (i < len && isdigit((unsigned char)text[i]))
        i++;
    if (i == digits || (text[digits] == '0' && i > digits + 1))
        return false;
    if (i < len && text[i] == '.') {
        digits = ++i;
        while (i < len && isdigit((unsigned char)text[i]))
            i++;
        if (i == digits)
            return false;
    }
    if (i < len && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        i += i < len && (text[i] == '+' || text[i] == '-');
        digits = i;
        while (i < len && isdigit((unsigned char)text[i]))
            i++;
        if (i == digits)
            return false;
    }
    return i == len;
}

/* The JSON of a word, or NULL. */
static const char *constant_of(enum value_syntax syntax, const char *text, size_t len)
{
    static const char *const constants[][2] = {{"true", "true"}, {"false", "false"}, {"null", "null"},
                                               {"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < (syntax == VALUE_PYTHON ? 6 : 3); i++)
        if (strlen(constants[i][0]) == len && memcmp(constants[i][0], text, len) == 0)
            return constants[i][1];
    return NULL;
}

/* Reads the number, constant or key without quotes at text[len], which must have the byte behind it. */
static int read_word(struct value_reader *r, const char *text, size_t len, size_t *taken,
                     struct buf *out, struct err *err)
{
    size_t n = 0;
    while (n < len && n < WORD_BYTES && is_word(text[n]))
        n++;
    if (n == len)
        return VALUE_MORE;
    if (n == 0 || n == WORD_BYTES)
        return VALUE_BAD;
    if (begin_element(r, out, err) < 0)
        return -1;
    const char *constant = constant_of(r->syntax, text, n);
    int rc;
    if (r->is_key ? r->syntax != VALUE_LOOSE : !constant && !is_number(text, n))
        return VALUE_BAD;
    if (r->is_key)
        rc = buf_addf(out, err, "\"%.*s\"", (int)n, text);
    else
        rc = constant ? buf_add(out, constant, strlen(constant), err) : buf_add(out, text, n, err);
    *taken += n;
    return rc < 0 ? -1 : end_element(r);
}

static int open_container(struct value_reader *r, char c, struct buf *out, struct err *err)
{
    if (r->is_key || r->depth == VALUE_DEPTH)
        return VALUE_BAD;
    r->closing[r->depth++] = c == '{' ? '}' : ']';
    r->expects = c == '{' ? EXPECTS_MEMBER : EXPECTS_ELEMENT;
    return buf_add(out, &c, 1, err) < 0 ? -1 : VALUE_MORE;
}

/* Reads the string delimiter at text[len], if there is one: VALUE_MORE; else VALUE_BAD. */
static int open_string(struct value_reader *r, const char *text, size_t len, size_t *taken,
                       struct buf *out, struct err *err)
{
    size_t n = 1;
    if (r->syntax == VALUE_LOOSE && r->quote && *text == *r->quote) {
        n = strlen(r->quote);
        if (memcmp(text, r->quote, size_min(n, len)) != 0)
            return VALUE_BAD;
        if (len < n)
            return VALUE_MORE;
        r->delimiter = OTHER_QUOTE;
    } else {
        r->delimiter = *text;
    }
    *taken += n;
    return begin_element(r, out, err) < 0 || buf_add(out, "\"", 1, err) < 0 ? -1 : VALUE_MORE;
}

/* Reads the byte of punctuation `c` between values; *known is false if it is none that may come next. */
static int read_mark(struct value_reader *r, char c, bool *known, struct buf *out, struct err *err)
{
    const bool closes = r->depth && c == r->closing[r->depth - 1];
    const bool may_close =
        r->expects == EXPECTS_NEXT || r->expects == EXPECTS_ELEMENT || r->expects == EXPECTS_MEMBER;
    *known = true;
    if (closes && may_close) {
        r->depth--;
        r->comma = r->is_key = false;
        return buf_add(out, &c, 1, err) < 0 ? -1 : end_element(r);
    }
    if (c == ':' && r->expects == EXPECTS_COLON) {
        r->expects = EXPECTS_VALUE;
        return buf_add(out, &c, 1, err) < 0 ? -1 : VALUE_MORE;
    }
    if (c == ',' && r->expects == EXPECTS_NEXT && r->depth) {
        const bool in_object = r->closing[r->depth - 1] == '}', may_end = r->syntax != VALUE_JSON;
        r->comma = true;
        r->expects = in_object ? may_end ? EXPECTS_MEMBER : EXPECTS_KEY
                     : may_end ? EXPECTS_ELEMENT
                               : EXPECTS_VALUE;
        return VALUE_MORE;
    }
    *known = false;
    return VALUE_BAD;
}

int value_read(struct value_reader *r, const char *text, size_t len, size_t *taken, struct buf *out,
               struct err *err)
{
    int rc = VALUE_MORE;
    *taken = 0;
    while (*taken < len && rc == VALUE_MORE) {
        const size_t before = *taken;
        const char *at = text + before, c = *at;
        bool known;
        if (r->delimiter) {
            rc = read_string(r, text, len, taken, out, err);
        } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            ++*taken;
            continue;
        } else if ((rc = read_mark(r, c, &known, out, err)) < 0 || known) {
            ++*taken;
        } else if (r->expects == EXPECTS_COLON || r->expects == EXPECTS_NEXT) {
            return VALUE_BAD;
        } else if (c == '{' || c == '[') {
            rc = begin_element(r, out, err) < 0 ? -1 : open_container(r, c, out, err);
            ++*taken;
        } else if (c == '"' || (c == '\'' && r->syntax == VALUE_PYTHON) ||
                   (r->syntax == VALUE_LOOSE && r->quote && c == *r->quote)) {
            rc = open_string(r, at, len - before, taken, out, err);
        } else {
            rc = read_word(r, at, len - before, taken, out, err);
        }
        if (*taken == before)
            break;
    }
    return rc;
}
