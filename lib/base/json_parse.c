/* Parses JSON text to jansson's values. jansson's own parser ignores failures to grow the buffer of a
 * token: when memory is exhausted it truncates strings, and numbers end the process by an assertion. */
#include <utf8proc.h>

#include "base/json.h"
#include "base/number.h"

enum { MAX_DEPTH = 2048, FEW_ENTRIES = 4096, SHARED = 1 << 18 };

struct json_parser {
    const char *text;
    size_t size, at, depth, flags;
    struct buf token; /* the last string or number */
    size_t n_values;  /* besides shared ones */
    json_t **shared;  /* [SHARED]: whole numbers below it that long lists hold; or NULL */
    bool in_long_list;
    json_error_t *why;
};

static json_t *parse_value(struct json_parser *p);

static bool parse_failed(const struct json_parser *p) { return p->why->text[0]; }

/* Sets the error at the current position, unless there is one; returns NULL. */
__attribute__((format(printf, 3, 4))) static void *
fail_at(struct json_parser *p, enum json_error_code code, const char *format, ...)
{
    json_error_t *why = p->why;
    va_list args;
    if (parse_failed(p))
        return NULL;
    *why = (json_error_t){.line = 1, .position = (int)p->at};
    for (size_t i = 0; i < p->at && i < p->size; i++) {
        why->line += p->text[i] == '\n';
        why->column = p->text[i] == '\n' ? 0 : why->column + 1;
    }
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text - 1, format, args);
    va_end(args);
    why->text[sizeof why->text - 1] = (char)code;
    return NULL;
}

static void *no_memory(struct json_parser *p)
{
    return fail_at(p, json_error_out_of_memory, "out of memory");
}

static void *fail_unexpected(struct json_parser *p, const char *expected)
{
    const unsigned char c = p->at < p->size ? (unsigned char)p->text[p->at] : 0;
    if (p->at >= p->size)
        return fail_at(p, json_error_premature_end_of_input, "%s is expected, the text ends", expected);
    p->at++;
    return c > ' ' && c < 0x7f
               ? fail_at(p, json_error_invalid_syntax, "%s is expected, found '%c'", expected, c)
               : fail_at(p, json_error_invalid_syntax, "%s is expected, found byte 0x%02x", expected,
                         c);
}

static void skip_blanks(struct json_parser *p)
{
    while (p->at < p->size && p->text[p->at] && strchr(" \t\n\r", p->text[p->at]))
        p->at++;
}

/* Skips a byte, if it is the next one. */
static bool skip_byte(struct json_parser *p, char byte)
{
    const bool next = p->at < p->size && p->text[p->at] == byte;
    p->at += next;
    return next;
}

static bool add_to_token(struct json_parser *p, const char *bytes, size_t n)
{
    struct err ignored;
    if (buf_add(&p->token, bytes, n, &ignored) == 0)
        return true;
    no_memory(p);
    return false;
}

/* The number of 4 hexadecimal digits, or -1. */
static int32_t read_hex(struct json_parser *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        const char c = p->at < p->size ? p->text[p->at] : 0;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool is_surrogate(int32_t code) { return code >= 0xd800 && code <= 0xdfff; }

/* Reads an escape sequence after \u: one character, of which some have two of them. */
static bool add_unicode(struct json_parser *p)
{
    char bytes[4];
    int32_t code = read_hex(p);
    if (is_surrogate(code)) {
        const bool pair = code < 0xdc00 && skip_byte(p, '\\') && skip_byte(p, 'u');
        const int32_t low = pair ? read_hex(p) : -1;
        code = low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code < 0)
        return fail_at(p, json_error_invalid_syntax, "an invalid escape sequence \\u");
    if (!code && !(p->flags & JSON_ALLOW_NUL))
        return fail_at(p, json_error_null_character, "\\u0000 is not supported here");
    return add_to_token(p, bytes, (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)bytes));
}

static bool add_escaped(struct json_parser *p)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char c = p->at < p->size ? p->text[p->at] : 0;
    const char *name = c ? strchr(names, c) : NULL;
    if (skip_byte(p, 'u'))
        return add_unicode(p);
    if (!name)
        return fail_unexpected(p, "an escape sequence");
    p->at++;
    return add_to_token(p, &bytes[name - names], 1);
}

/* The length of valid UTF-8 without quotes, backslashes and control characters. */
static size_t plain_length(const struct json_parser *p)
{
    size_t at = p->at;
    while (at < p->size) {
        const unsigned char c = (unsigned char)p->text[at];
        utf8proc_int32_t code;
        if (c == '"' || c == '\\' || c < ' ')
            break;
        if (c < 0x80) {
            at++;
            continue;
        }
        const size_t left = p->size - at;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)p->text + at,
                                                    left < 4 ? (utf8proc_ssize_t)left : 4, &code);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return at - p->at;
}

/* Reads a string to the token, after its first quote. */
static bool read_string(struct json_parser *p)
{
    buf_clear(&p->token);
    if (!add_to_token(p, "", 0))
        return false;
    while (!skip_byte(p, '"')) {
        const size_t n = plain_length(p);
        if (!add_to_token(p, p->text + p->at, n))
            return false;
        p->at += n;
        if (skip_byte(p, '\\') ? !add_escaped(p) : !n)
            return fail_unexpected(p, "a character of a string");
    }
    return true;
}

static json_t *parse_string(struct json_parser *p)
{
    json_t *value = read_string(p) ? json_stringn_nocheck(p->token.data, p->token.len) : NULL;
    return value ? value : no_memory(p);
}

static size_t skip_digits(struct json_parser *p)
{
    const size_t from = p->at;
    while (p->at < p->size && p->text[p->at] >= '0' && p->text[p->at] <= '9')
        p->at++;
    return p->at - from;
}

/* A reference to a number of which long lists, such as token ids, hold many. */
static json_t *shared_number(struct json_parser *p, size_t number)
{
    if (!p->shared && !(p->shared = calloc(SHARED, sizeof *p->shared)))
        return no_memory(p);
    p->n_values--;
    if (!p->shared[number] && !(p->shared[number] = json_integer((json_int_t)number)))
        return no_memory(p);
    return json_incref(p->shared[number]);
}

static void release_shared(struct json_parser *p)
{
    for (size_t i = 0; p->shared && i < SHARED; i++)
        json_decref(p->shared[i]);
    free(p->shared);
}

static json_t *parse_number(struct json_parser *p)
{
    const size_t from = p->at;
    bool real = p->flags & JSON_DECODE_INT_AS_REAL;
    skip_byte(p, '-');
    if (!skip_byte(p, '0') && !skip_digits(p))
        return fail_unexpected(p, "a digit");
    if (skip_byte(p, '.')) {
        real = true;
        if (!skip_digits(p))
            return fail_unexpected(p, "a digit");
    }
    if (skip_byte(p, 'e') || skip_byte(p, 'E')) {
        real = true;
        if (!skip_byte(p, '+'))
            skip_byte(p, '-');
        if (!skip_digits(p))
            return fail_unexpected(p, "a digit");
    }
    int64_t integer;
    double value = 0;
    buf_clear(&p->token);
    if (!add_to_token(p, p->text + from, p->at - from))
        return NULL;
    if (!real && !parse_int64(p->token.data, &integer))
        return fail_at(p, json_error_numeric_overflow, "an integer of more than 64 bits");
    if (real && !parse_double(p->token.data, &value))
        return fail_at(p, json_error_numeric_overflow, "a number is too large");
    if (!real && p->in_long_list && integer >= 0 && integer < SHARED)
        return shared_number(p, (size_t)integer);
    json_t *number = real ? json_real(value) : json_integer(integer);
    return number ? number : no_memory(p);
}

static json_t *parse_word(struct json_parser *p)
{
    static const struct {
        const char *word;
        json_t *(*make)(void);
    } words[] = {{"true", json_true}, {"false", json_false}, {"null", json_null}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i].word);
        if (p->size - p->at >= n && memcmp(p->text + p->at, words[i].word, n) == 0) {
            p->at += n;
            return words[i].make();
        }
    }
    return fail_unexpected(p, "a value");
}

/* Continues a list or an object after a value: true if another one follows. */
static bool another_follows(struct json_parser *p, char end, const char *expected)
{
    skip_blanks(p);
    if (skip_byte(p, end))
        return false;
    if (skip_byte(p, ','))
        return true;
    return fail_unexpected(p, expected);
}

static json_t *parse_list(struct json_parser *p)
{
    json_t *list = json_array();
    if (!list)
        return no_memory(p);
    skip_blanks(p);
    if (skip_byte(p, ']'))
        return list;
    do {
        p->in_long_list = json_array_size(list) > FEW_ENTRIES;
        json_t *value = parse_value(p);
        if (value && json_array_append_new(list, value) < 0)
            no_memory(p);
    } while (!parse_failed(p) && another_follows(p, ']', "',' or ']'"));
    return list;
}

static json_t *parse_member(struct json_parser *p, json_t *object)
{
    skip_blanks(p);
    if (!skip_byte(p, '"'))
        return fail_unexpected(p, "a member's name in quotes");
    if (!read_string(p))
        return NULL;
    if (strlen(p->token.data) < p->token.len)
        return fail_at(p, json_error_null_byte_in_key, "a member's name has a NUL byte");
    if ((p->flags & JSON_REJECT_DUPLICATES) && json_object_get(object, p->token.data))
        return fail_at(p, json_error_duplicate_key, "duplicate object key \"%s\"", p->token.data);
    AUTO(free_auto) char *name = strdup(p->token.data);
    if (!name)
        return no_memory(p);
    skip_blanks(p);
    p->in_long_list = false;
    json_t *value = skip_byte(p, ':') ? parse_value(p) : fail_unexpected(p, "':'");
    if (value && json_object_set_new_nocheck(object, name, value) < 0)
        value = no_memory(p);
    return value;
}

static json_t *parse_object(struct json_parser *p)
{
    json_t *object = json_object();
    if (!object)
        return no_memory(p);
    skip_blanks(p);
    if (skip_byte(p, '}'))
        return object;
    while (parse_member(p, object) && !parse_failed(p) && another_follows(p, '}', "',' or '}'"))
        ;
    return object;
}

/* Parses a value after blanks. On error NULL or a part of it, and why->text is set. */
static json_t *parse_value(struct json_parser *p)
{
    json_t *value;
    skip_blanks(p);
    if (++p->depth > MAX_DEPTH)
        return fail_at(p, json_error_stack_overflow, "maximum parsing depth of %d reached", MAX_DEPTH);
    if (++p->n_values > JSON_MOST_VALUES && p->flags & JSON_FEW_VALUES)
        return fail_at(p, json_error_invalid_syntax, "more than %d values", JSON_MOST_VALUES);
    if (skip_byte(p, '{'))
        value = parse_object(p);
    else if (skip_byte(p, '['))
        value = parse_list(p);
    else if (skip_byte(p, '"'))
        value = parse_string(p);
    else if (p->at < p->size &&
             (p->text[p->at] == '-' || (p->text[p->at] >= '0' && p->text[p->at] <= '9')))
        value = parse_number(p);
    else
        value = parse_word(p);
    p->depth--;
    return value;
}

json_t *json_load(const char *text, size_t size, size_t flags, json_error_t *why)
{
    struct json_parser p = {.text = text, .size = size, .flags = flags, .why = why};
    *why = (json_error_t){.line = -1};
    skip_blanks(&p);
    json_t *root = flags & JSON_DECODE_ANY || p.at == size || text[p.at] == '{' || text[p.at] == '['
                       ? parse_value(&p)
                       : fail_unexpected(&p, "an object or a list");
    skip_blanks(&p);
    if (!parse_failed(&p) && p.at < size && !(flags & JSON_DISABLE_EOF_CHECK))
        fail_unexpected(&p, "the end of the text");
    buf_release(&p.token);
    release_shared(&p);
    if (!parse_failed(&p))
        return root;
    json_decref(root);
    return NULL;
}
